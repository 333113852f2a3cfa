"""Whether the answers to clients are what happened."""
