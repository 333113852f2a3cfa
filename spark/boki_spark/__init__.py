"""Books in Spark: batches, streams and sinks, and open files of what was written."""
