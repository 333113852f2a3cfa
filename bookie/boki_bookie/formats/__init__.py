"""The bytes of a journal and of an entry log. Pure."""
