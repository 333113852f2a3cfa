"""Test tools: `small_cluster` (a cluster in one process), `sink_model` (a model of the sink's rules, explored in full)."""
