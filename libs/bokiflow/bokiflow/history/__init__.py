"""Workflows as the log has them. Read `instance_state`, then `inspection`; then `history_checkpoint`, `forks` and `ends`."""
