"""Format and state of objects. Pure.

Read `operations` and `events`; then `fold` (an object) and `directory_rules` (the names of a collection). `view_format` is the format of
aux data.
"""
