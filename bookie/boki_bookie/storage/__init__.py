"""One storage for each directory, and the router over them.

`storage` takes adds, fences and reads (`storage_reads`) of its ledgers, `waiting_adds` those that wait for one another, `limbo`
entries of which it is unknown whether they were stored; `storage_router` finds the storage of a ledger.
"""
