"""For tests: a whole log in one process (`cluster`), engines (`engines`), and logs made by hand (`logs`)."""
