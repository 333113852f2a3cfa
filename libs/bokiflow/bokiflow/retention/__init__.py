"""Deleting what has ended: the collector and its rules."""
