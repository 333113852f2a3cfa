"""Receiving messages. Read `consumer` (a member of a group), `messages`, `handlers`, then `receiving` (messages as workflow steps)."""
