"""The format of queues: events, shard state, and the rules of delivery. Pure."""
