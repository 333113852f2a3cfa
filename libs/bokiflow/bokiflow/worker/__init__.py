"""A worker: its partitions, its peers, its fences."""
