"""The controller: who serves which log, and changes that people ask for.

`election` chooses one controller, `policies` and `controller_rules` decide by `weights`, `log_changes` adds, moves and ends logs.
"""
