"""Pushing messages (`producer`), finding out which of them are duplicates (`copies`), and moving those that went astray (`strays`)."""
