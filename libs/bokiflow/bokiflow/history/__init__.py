"""Workflows as the log has them. Read `instance_state`, then `inspection` and `listing`; then `history_checkpoint`, `forks` and `ends`."""
