"""Planning: from the options of a read or write to partitions, on the Spark driver.

Read in this order: `options` and `read_options` (text to values), `cluster` (where plans come from), `blocking_cluster` (a
cluster for threads that may block), `stream_rules` (the offsets of
streams), `stream_planner` (the batches of a stream), `bundles` (small partitions that share a task).
"""
