"""Messages that were pushed twice under one id. Pure.

Of several messages of a shard with one deduplication id the first counts; those that come within `window_ms` of it, by the clock of the
log, are dropped. The next one after that is a first again. It is decided where the shard's messages are folded, in their order and
by the times of their records, so everybody decides alike; no clock of any machine is read.

The window is part of the state that checkpoints keep: a new owner reads some messages again, and must not compare them twice. What was read
before the checkpoint is decided there (`shard_state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Window:
    """Ids that are remembered, each with the time of its first message, oldest first."""

    def __init__(self, window_ms: int, first_ms: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        self.window_ms = window_ms
        self._first_ms: dict[str, int] = dict(first_ms)

    def __len__(self) -> int:
        return len(self._first_ms)

    def twice(self, dedup: str, time_ms: int) -> bool:
        """Whether a message is a copy; if not, it is a first from now on."""
        self._forget(time_ms)
        if dedup in self._first_ms:
            return True
        self._first_ms[dedup] = time_ms
        return False

    def _forget(self, now_ms: int) -> None:
        """Times of a log never fall, so the oldest come first."""
        over = []
        for dedup, first_ms in self._first_ms.items():
            if now_ms - first_ms <= self.window_ms:
                break
            over.append(dedup)
        for dedup in over:
            del self._first_ms[dedup]

    def items(self) -> list[tuple[str, int]]:
        """What a checkpoint keeps: as of the newest message that was compared, for the next one may be hardly younger, whatever time
        it is by then."""
        return list(self._first_ms.items())
