"""Decisions about copies: who has an entry, what answers prove, what a recovery may say. Pure."""
