"""Appending to a book: one log per process, fences of writers, and records that hold parts of several libraries."""
