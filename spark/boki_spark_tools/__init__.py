"""The commands of the data pipeline, found by entry points: `boki offload`."""
