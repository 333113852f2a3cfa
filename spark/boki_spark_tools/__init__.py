"""What people have of the data pipeline on the command line, by entry points: `boki offload`."""
