"""The format of records, all pure: `events`, `tags`, `codec` (JSON values), `contribution`, `isolation` and `conflict_rules`."""
