"""Writing a ledger.

`writer` numbers entries, `replicated_adds` sends each to its write set and counts acknowledgements, `ensemble_changes` replaces bookies
that fail, `ack_waiters` wakes waiters; `caller_writer` is for callers that number entries themselves.
"""
