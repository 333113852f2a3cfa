"""Entries at rest: entry logs, the index of ledgers, and checkpoints that let the journal go.

`ledger_index` maps a ledger and an entry to a place in an `entry_log`; `tombstones` remember what was deleted, `ledger_digests` and
`validation` whether a ledger may be written here. `checkpoint_loop` writes what the journal has to entry logs.
"""
