"""The records of machines and the rules that read them, all pure and without classes of users.

Read `events` (the format), then `machine_state` (the state of one machine, folded from its commits).
"""
