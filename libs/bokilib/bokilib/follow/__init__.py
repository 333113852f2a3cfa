"""Following a book: `follower` (records of many streams as they arrive), `news` (batched queries), `members` and `lease_rules`."""
