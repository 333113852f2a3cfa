"""Commands about records: append, read, tail, trim; and how lines of a file become appends."""
