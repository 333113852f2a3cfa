"""Locks between workflows.

Read `bokiflow.model.lock_rules` first (events, the queue and its rules), then `lock_reading` (a lock as
of now), `lock_room` (the locks of one process: waiting and retention) and `locks` (`bokiflow.lock`).
"""
