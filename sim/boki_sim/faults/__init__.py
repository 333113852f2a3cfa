"""Faults: what they are and how a seed draws them. Pure."""
