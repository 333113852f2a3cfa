"""Format and state of objects. Pure.

Read `operations` and `events`; then `fold` (an object, and how a view of it is stored) and `directory_rules` (the names of a collection).
"""
