"""What an engine has made of a log: the state, and its snapshots.

`state` takes ordered entries one after another; `frontier` says how far. `state_snapshot` is its value at a cut, `snapshot_format` its
bytes, `some_slots` the part of it that an engine serves, `snapshot_rules` and `snapshots` which are kept in the ledgers.
"""
