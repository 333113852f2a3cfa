"""Writers: who appended which numbers, and what that makes of the next ones. Pure.

A verdict (`verdict`) is given to each run of records by the table of writers (`writers`, `writer_table`), above the floors of those that
were forgotten (`writer_floors`); `foreign_runs` knows what a term does not order, `early_conflicts` what has lost before it is sent.
"""
