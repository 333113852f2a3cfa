"""Whether the process behind a session of the SQLite store still lives, as /proc and the system tell.

Three answers: it lives, it is gone, or *unknown*. Who may not look at a process (`hidepid`, a container without /proc, another
user's) finds no file of it there, which proves nothing; only the system's word that there is no process of that number does.
What is unknown is left to the age of the session.
"""

from __future__ import annotations

import os
from typing import Final

UNKNOWN_START: Final = 0
"""When a process started that could not find out."""


def is_gone(pid: int, started: int, *, proc: str = "/proc") -> bool | None:
    """Whether the process of that number, which started then (field 22 of its stat), has ended; None: unknown.

    A zombie holds nothing any more: it is gone.
    """
    found = process_started(pid, proc=proc)
    if found is None or started == UNKNOWN_START:
        return None if exists(pid) else True
    return found != started


def process_started(pid: int, *, proc: str = "/proc") -> int | None:
    """When it started, in clock ticks since boot; -1 for a zombie; None when there is nothing to be read."""
    try:
        with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    return -1 if fields[0] in ("Z", "X") else int(fields[19])


def exists(pid: int) -> bool:
    """Whether there is a process of that number, also one that this user may not look at."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
