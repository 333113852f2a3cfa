"""Reads of objects.

Read `view_cache`, `checkpoint_reads` and `snapshot_reads`; then `follow_choice` and `followed`.
Users get `snapshot`, `watch` and `inspection`.
"""
