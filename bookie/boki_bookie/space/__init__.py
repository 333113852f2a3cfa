"""Space: which ledgers and entry logs may go, and what a full disk still takes.

`garbage_collection` goes through ledgers (`ledger_collection`) and files (`file_collection`, `compaction`) by `gc_rules`; `disk_reserve`
keeps room for fences and for collection itself.
"""
