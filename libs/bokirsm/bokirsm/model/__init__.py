"""The records of machines and the rules that read them, all pure and without classes of users.

Read `events` (the format), `parts` (large states in several records), `machine_state` (the state of one machine, folded from its commits),
`partition_state` (that of a partition), then `lane_record` (the record that a process of partitions fills).
"""
