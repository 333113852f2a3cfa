"""Pushing messages: batches of appends, and the deduplication of pushes."""
