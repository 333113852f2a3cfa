"""Closing a ledger that another one wrote.

`fencing_reads` and `fence_proof` keep its writer from acknowledging more, `end_search` finds the last entry, `write_back` completes its
copies, `recovery` does all of it.
"""
