"""A lane: the partitions of one process, their machines in memory, and the record that commits what they did.

Read `loading` (partitions and machines from the log), `inboxes` (a machine in memory), `reading_ahead` (a partition in which too much
waits), `checkpoints` (what is written so that records can be trimmed), `lane`, then `carrying` (idle machines whose records are old).
"""
