"""`boki demo`: records of a data set, processes killed, and a comparison at the end."""
