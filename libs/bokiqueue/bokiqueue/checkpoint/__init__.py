"""The stored state of a shard: checkpoints of its owners (`checkpointing`), and sets of rewritten messages (`old_messages`)."""
