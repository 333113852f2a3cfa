"""The format of objects: events, operations, values, and how values are folded from them. Pure."""
