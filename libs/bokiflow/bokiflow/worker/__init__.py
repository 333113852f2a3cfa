"""A worker: the process that runs workflows of its partitions.

Read `partitions` (claims of partitions, on `bokilib.partitions`), `held_back` (the back-off) and `takeover` (claims of workflows); then
`worker`, which runs them. Its features are `blocked_workflows`, `fences`, `draining` and `upkeep`.
"""
