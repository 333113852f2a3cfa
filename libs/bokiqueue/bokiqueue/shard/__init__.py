"""Owning a shard: its arrivals, its deliveries, its checkpoints."""
