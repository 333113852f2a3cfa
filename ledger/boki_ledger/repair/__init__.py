"""Repair: copies of closed ledgers come back when a bookie is lost.

`plan` decides (pure): which entries have a fixed end, which copies are missing, what is copied first and to whom. `away` remembers
how long bookies are gone. `worker` copies one ledger and changes its metadata; `auditor` looks at all ledgers and has them copied.
"""
