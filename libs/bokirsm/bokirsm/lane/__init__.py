"""A lane: the partitions of one process, their machines in memory, and the record that commits what they did.

Read `loading` (partitions and machines from the log), `inboxes` (a machine in memory), `checkpoints`
(what is written so that records can be trimmed), `lane`, then `carrying` (machines of the book whose records are old).
"""
