"""Retention: `checkpoint_rules`, `trimmer`, `rewritten_states`, and `carrier`, which rewrites old records out of old terms."""
