"""Pauses of libraries before they try again what failed: short at first, each twice as long, never longer than `LIMIT_S`.

The SDK has tried for its own time-out before anything fails that may be tried again; so these are for what keeps failing at once.
"""

from __future__ import annotations

from typing import Final

from boki_common.backoff import Backoff

FIRST_S: Final = 0.1
LIMIT_S: Final = 5.0


def pauses() -> Backoff:
    """Those of one series of attempts: `reset` it when one has succeeded."""
    return Backoff(FIRST_S, LIMIT_S)
