"""Reading workflows from the log: instances, partitions, forks."""
