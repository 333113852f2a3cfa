"""The API for programs: apps, clients, handles, results, schedules, replays.

Read `app` first (definitions), then `flow` and `handles` (starts and results), `results` (waiting for ends), and the features on top:
`schedules`, `debounce`, `in_atomic`, `replayer`, `terminating`.
"""
