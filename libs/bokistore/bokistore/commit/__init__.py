"""Transactions: staging, the records of a commit, and commits of a process batched into one append."""
