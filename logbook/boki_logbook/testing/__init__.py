"""For tests: a whole log in one process (`cluster`), engines (`engines`), logs made by hand (`logs`), plans of a state (`plans`)."""
