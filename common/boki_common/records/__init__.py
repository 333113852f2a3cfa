"""Batches of records as bytes: built, read, checked."""
