"""Pauses of libraries between attempts: short at first, each twice as long as the one before, at most `LIMIT_S`.

The SDK retries for its own time-out before it raises a retryable error, so these pauses matter for calls that fail at once.
"""

from __future__ import annotations

from typing import Final

from boki_common.backoff import Backoff

FIRST_S: Final = 0.1
LIMIT_S: Final = 5.0


def pauses() -> Backoff:
    """Return the pauses of one series of attempts. Call `reset` after a success."""
    return Backoff(FIRST_S, LIMIT_S)
