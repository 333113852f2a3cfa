"""Outputs of machines, as a host delivers them by plugins."""
