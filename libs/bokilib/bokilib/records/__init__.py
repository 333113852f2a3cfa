"""The format of records: events, values, tags, parts of one record, and the expectations a transaction appends with."""
