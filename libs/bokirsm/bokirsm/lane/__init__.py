"""A lane: the partitions of one process, their machines in memory, and the record that commits what they did.

Read `loading` (partitions and machines from the log), `inboxes` (a machine in memory), then `lane`.
"""
