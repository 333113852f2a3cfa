"""What an engine does for the log besides serving it: clocks, expiry, reclaim, backup of aux data.

`clock_watch` and `watched_time` say how much time has surely passed, `expiry` which writers and streams may be forgotten, `reclaim`
which terms and ledgers may go, `aux_backup` keeps aux data.
"""
