"""The sink: appends the rows of a frame to a book, each exactly once.

Read in this order: `sink_rules` (the records of a sink and what one attempt may do; start here), `sink_rows` (columns to records),
`sink_writer` (appends one partition, commits one batch), `sink` (the classes that Spark calls).
"""
