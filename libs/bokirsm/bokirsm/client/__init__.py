"""Machines from outside: `answers` (answers to questions), then `rsm` (create, send, ask, and decide about faults)."""
