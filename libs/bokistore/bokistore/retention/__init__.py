"""Checkpoints, trims, rewrites and expiry. Read `checkpointer`, then `upkeep`, which calls it in the background."""
