"""Checkpoints, expiry, and the background work of a store."""
