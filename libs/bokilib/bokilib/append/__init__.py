"""Appends to a book: `log` (the log of a book), then `fence` (one holder at a time) and `atomic` (one record of several libraries)."""
