"""Attempts to reach an engine: how long to wait for the next one, and when to stop. Pure.

- Waits double from 50 ms to 2 s, with jitter.
- An engine that refuses what this client sends is asked again by others, or by itself, a few times; then the client ends:
  sending the same again cannot help.
- So it does when none of the engines takes the cluster token that it shows, or that it shows none.
- So it does when engines of another cluster answer at its addresses, a few times, and none of its own does: a restored copy took their
  place, say. What this client has seen and sent means nothing there.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import AccessError, BokiError, Overloaded, ProtocolError, UsageError, WrongCluster

BACKOFF_LEAST_S: Final = 0.05
BACKOFF_MOST_S: Final = 2.0
OVERLOADED_ATTEMPTS: Final = 3
"""An engine that refused appends as too many is left alone for as long as after so many failed attempts."""
REFUSALS: Final = 3
"""Connections in a row that may end with a protocol error before the client gives up."""
STRANGERS: Final = 3
"""Answers of engines of another cluster, while none of this client's own lets it in, before it gives up: one may be a mistake."""
_JITTER: Final = 1_024


def backoff_s(attempt: int, jitter: int) -> float:
    """Half to the whole of 50 ms × 2^attempt, at most 2 s.

    Args:
        jitter: drawn from 0 to 512.
    """
    most: float = min(BACKOFF_LEAST_S * 2.0 ** min(attempt, 10), BACKOFF_MOST_S)
    return most * (_JITTER // 2 + jitter) / _JITTER


class Attempts:
    """What became of the attempts since something succeeded. `count`: that failed in a row. `fault`: the last one."""

    __slots__ = ("_denials", "_refusals", "_strangers", "count", "fault")

    def __init__(self) -> None:
        self.count = 0
        self.fault: BokiError | None = None
        self._refusals = 0
        self._denials = 0
        self._strangers = 0

    def begun(self) -> int:
        """An attempt begins. Returns how many failed before it."""
        self.count += 1
        return self.count - 1

    def connected(self) -> None:
        """An engine let this client in."""
        self._denials = self._strangers = 0

    def answered(self) -> None:
        """A call was answered."""
        self.count = 0

    def decided(self) -> None:
        """Appends were answered: nobody refuses them."""
        self.count = self._refusals = 0

    def lost(self, error: BokiError | None) -> str:
        """A connection was lost. Returns why to end the client, or ""."""
        self.fault = error
        if isinstance(error, Overloaded):
            self.count = max(self.count, OVERLOADED_ATTEMPTS)
        return self._refused(error) if isinstance(error, (ProtocolError, UsageError)) else ""

    def failed(self, error: BokiError, engines: int) -> str:
        """No connection was made. Returns why to end the client, or ""."""
        self.fault = error
        if isinstance(error, AccessError):
            self._denials += 1
            return f"no engine lets this client in ({error})" if self._denials >= engines else ""
        if isinstance(error, WrongCluster):
            self._strangers += 1
            return f"another cluster is where this client's was ({error})" if self._strangers >= STRANGERS else ""
        return self._refused(error) if isinstance(error, ProtocolError) else ""

    def _refused(self, error: BokiError) -> str:
        self._refusals += 1
        return f"the engine refused this client's messages ({error})" if self._refusals >= REFUSALS else ""
