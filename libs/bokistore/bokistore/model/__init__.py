"""Format and state of objects. Pure.

Read `operations` on `dotted_paths` and `events`; then `fold` (an object) and `directory_rules` (the names of a collection). `subjects` have
checkpoints, `view_format` is the format of aux data, and `diff` compares states.
"""
