"""Looking at queues, redriving dead letters, and rewriting what must outlive old records."""
