"""Reading a ledger.

`reader` reads entries from their replicas (`replica_reads`, `batch_reads`, `read_ahead`), `tail` and `lac_reads` follow one that is being
written, `replica_copies` and `replica_words` ask what each bookie has.
"""
