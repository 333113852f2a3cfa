"""Inside a running workflow: its loop, its calls, its signals and transactions."""
