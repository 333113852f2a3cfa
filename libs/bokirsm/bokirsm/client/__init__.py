"""Machines from outside: `answers` (answers to questions), `rsm` (create, send, ask, and decide about faults), `sync` (without a loop)."""
