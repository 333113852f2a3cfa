"""A worker: the process that runs workflows of its partitions.

Read `partition_rules` (which worker should own which partition), `partition_owner` (claims), `peers` (living workers), `held_back` (the
back-off) and `takeover` (claims of workflows); then `worker`, which runs them. Its features are `blocked_workflows`, `fences`, `draining`
and `upkeep`.
"""
