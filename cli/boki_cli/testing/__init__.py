"""For tests: commands in this process, bookies with damaged entries, logs."""
