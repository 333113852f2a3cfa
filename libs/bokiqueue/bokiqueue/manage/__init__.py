"""Looking at queues (`inspection`), and rewriting records out of old terms (`carrying`)."""
