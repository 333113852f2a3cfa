"""Pushing messages (`producer`), and finding out which of them are duplicates (`copies`)."""
