"""Metadata of a ledger: its ensembles, who changed them, and whom a member trusts."""
