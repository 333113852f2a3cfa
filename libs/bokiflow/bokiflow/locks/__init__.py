"""Locks of workflows: queues, their rules, and their upkeep."""
