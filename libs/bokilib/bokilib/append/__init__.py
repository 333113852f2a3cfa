"""Appends to a book: `log`, `fence` (one holder), `atomic` (one record of several libraries), `batches` and `batcher` (of callers)."""
