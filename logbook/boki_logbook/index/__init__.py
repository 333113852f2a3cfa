"""The index: from a book, a tag and a seqnum to a place in a ledger. Pure but for `index_files`.

New rows are in `index_tail`, older ones in sorted runs (`sorted_run`, `run_merge`); `trim_marks` hide what is gone, `places` say where
entries lie, `index` answers over all of them, `batch_streams` says which streams a batch joins. `index_files` maps runs from disk.
"""
