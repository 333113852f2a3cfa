"""The way of a read, from the question to the records.

`reader` answers out of the state; `waiting` and `parked_reads` hold what has to wait, `barrier_reads` what needs a proof of the newest
position, `tag_lookup` finds in several streams. Records come through `cache`, `batch_loads` and `entry_source`.
"""
