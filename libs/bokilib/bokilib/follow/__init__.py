"""Following a book: records as they come, waits for news of a tag, members of a group and their leases."""
