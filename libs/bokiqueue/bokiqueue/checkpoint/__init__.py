"""What a shard was when it was written down last: checkpoints of owners, and lists of messages that are old."""
