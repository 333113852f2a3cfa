"""The format of records, all pure: `events`, `tags`, `codec` (JSON values), `contribution`, `dedup`, `isolation` and `conflict_rules`."""
