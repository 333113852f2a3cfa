"""Offloading: copies sealed terms from ledgers into the files that `boki_spark.cold_terms` reads.

Read in this order: `offloader` (one term, from plan to swap), `prove` (reads files back), `folder` (names of attempts, and which files may
be deleted), `survey` (the terms that are due), `job` (the calls for programs without an event loop).
"""
