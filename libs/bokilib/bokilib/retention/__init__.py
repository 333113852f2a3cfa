"""Letting old records go: checkpoints, the carrier that rewrites what must stay, and trims."""
