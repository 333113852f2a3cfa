"""Retention of ended workflows: `collect_rules` decides what may be deleted and when, `collector` does it."""
