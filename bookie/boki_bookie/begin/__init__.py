"""How a bookie begins: who it is, what it holds, and what the journal still has.

`identity` and `life` refuse a directory that is another's or an older copy; `journal_replay` and `journal_apply` bring back what was
acknowledged; `salvage` takes over what a person says is lost.
"""
