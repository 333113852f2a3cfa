"""The source: what Spark calls to read books.

Read in this order: `data_source` (the format `boki`), `reader` (batches and streams, on the driver), `worker` (reads partitions, in
executors), `datasets` (rows about terms and entries), `cold_frame` (native frames of offloaded terms).
"""
