"""Reads of objects.

Read `snapshot_reads`, which has the three forms of a read; then each of them: `checkpoint_reads`, `cached` on `view_cache`, and `followed`.
`inspection` has what users see over time: histories, differences and watches.
"""
