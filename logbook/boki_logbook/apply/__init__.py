"""From ordered cuts to the state, and to answers for who appended.

`engine_log` follows one log: `indexer` applies its metalog entries to the state with headers from `header_feed`, `answers_due` finds who
waits for what was ordered, `sealer` closes ledgers at the end of a term, `given_up` keeps to what was declared lost.
"""
