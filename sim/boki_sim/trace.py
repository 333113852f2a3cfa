"""The trace of a run: one line for everything that happened, of which a digest and the newest lines are kept.

Two runs are the same run exactly when their digests are equal. A line is `time process kind what`; nothing in it may
depend on an address, a hash seed or the wall clock. With `keep` all lines stay, for a replay.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from boki_sim.loop import SimLoop

NEWEST_LINES: Final = 400
FLUSH_LINES: Final = 512


class Trace:
    """See the module."""

    def __init__(self, loop: SimLoop, *, keep: bool = False) -> None:
        self._loop = loop
        self._digest = blake2b(digest_size=16)
        self._pending: list[str] = []
        self.lines: deque[str] = deque(maxlen=None if keep else NEWEST_LINES)
        self.count = 0

    def add(self, process: str, kind: str, what: str) -> None:
        """One thing that happened now."""
        pending = self._pending
        pending.append(f"{self._loop.time():.7f} {process} {kind} {what}")
        if len(pending) >= FLUSH_LINES:
            self._flush()

    def digest(self) -> str:
        """Of all lines so far."""
        self._flush()
        return self._digest.hexdigest()

    def newest(self, count: int = NEWEST_LINES) -> list[str]:
        self._flush()
        return list(self.lines)[-count:]

    def _flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._digest.update("\n".join(pending).encode() + b"\n")
            self.lines.extend(pending)
            self.count += len(pending)
