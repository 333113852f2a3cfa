"""Owning a shard for one group: `shard_owner`, and the reading of its messages (`arrivals`)."""
