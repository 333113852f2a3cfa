"""The way of an append, from a batch to entries of a shard.

`router` finds the shard of a book (`routes`), `append_queue` orders what waits, `appender` writes entries and `shard` counts them;
`spare_ledger` keeps the next ledger ready, `admission_watch` notices when disks are full.
"""
