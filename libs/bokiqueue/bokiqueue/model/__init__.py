"""The format of queues and the rules of delivery. Pure. Read `events`, `items`, `shard_state`, then `delivery_rules` and its parts."""
