"""Reading ledgers: from the partition of a plan to Arrow batches.

Read in this order: `entries` (reads and checks the entries of a partition), `arrow` (makes columns of their records).
"""
