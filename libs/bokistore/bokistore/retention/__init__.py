"""Checkpoints, expiry, and the upkeep that a store does beside the program."""
