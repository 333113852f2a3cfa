"""The journal: what was acknowledged survives a crash because it is here first.

`journal_queue` gathers adds, `journal` writes and flushes groups of them to segments (`journal_segments`, `next_segment`), at the pace
of the disk (`disk_pace`).
"""
