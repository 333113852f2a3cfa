"""Entries at rest: entry logs, the index of ledgers, and checkpoints that let the journal go.

`ledger_index` maps a ledger and an entry to a place in an `entry_log`; `tombstones` remember what was deleted, `ledger_digests` and
`sight` what an entry must look like. `checkpoint_loop` writes what the journal has to entry logs.
"""
