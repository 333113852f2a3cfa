"""Running workflows that a worker owns: bodies, timers, children, traces."""
