"""The trace of a run: one line for everything that happened, of which a digest and the newest lines are kept.

Two runs are the same run exactly when their digests are equal. A line is `time process kind what…`; nothing in it may
depend on an address, a hash seed or the wall clock. With `keep` all lines stay, for a replay.

Lines are kept as values, of which the digest is made (`settle`, which somebody calls now and then), and become text for readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from boki_sim.world.loop import SimLoop

NEWEST_LINES: Final = 400
FLUSH_LINES: Final = 512

_encode: Final = msgspec.msgpack.Encoder().encode

Value = str | int | float
Line = tuple[Value, ...]


class Trace:
    """See the module."""

    def __init__(self, loop: SimLoop, *, keep: bool = False) -> None:
        self._loop = loop
        self._digest = blake2b(digest_size=16)
        self._pending: list[Line] = []
        self.note: Final[Callable[[Line], None]] = self._pending.append
        """As `add`, for what happens all the time: the whole line, which begins with the time that it is now."""
        self._lines: deque[Line] = deque(maxlen=None if keep else NEWEST_LINES)

    def add(self, process: str, kind: str, *what: Value) -> None:
        self.note((self._loop.now, process, kind, *what))

    def digest_pending(self) -> None:
        """Takes in what was noted, `FLUSH_LINES` at a time."""
        while len(self._pending) >= FLUSH_LINES:
            self._take(FLUSH_LINES)

    def digest(self) -> str:
        """Of all lines so far."""
        self._digest_all()
        return self._digest.hexdigest()

    def keep_all(self) -> None:
        """From now on, as `keep`."""
        self._lines = deque(self._lines)

    def lines(self) -> list[str]:
        """All that are kept, as text."""
        self._digest_all()
        return [" ".join((f"{line[0]:.7f}", *map(_shown, line[1:]))) for line in self._lines]

    def _digest_all(self) -> None:
        self.digest_pending()
        if self._pending:
            self._take(len(self._pending))

    def _take(self, count: int) -> None:
        lines = self._pending[:count]
        del self._pending[:count]
        self._digest.update(_encode(lines))
        self._lines.extend(lines)


def _shown(value: Value) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)
