"""Ownership of partitions by the members of a group: of queues' shards, of workflows, of state machines.

The log decides: the newest claim of a partition's fence names its owner. Heartbeats only tell members when a claim is worth a try. Read
`assignment` (which member should own which partition, and what a member takes and gives), `claims` (the newest claims), `owner` (a
member's own claims), `peers` (which members are alive, leaving or gone), `rounds` (when a member looks at its partitions).

A library decides what a claim is for. If its records have fences of their own, as workflows have, a member may claim a partition from a
living holder, which finishes its work. If the partition's fence is the only one, as of a queue's shard or of state machines, a living
holder releases it.
"""
