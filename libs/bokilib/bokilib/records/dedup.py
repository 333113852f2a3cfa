"""Deduplication by ids: of several messages with one id within a window of time the first counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class DedupWindow:
    """Deduplication ids, each with the time of its first message, oldest first.

    Of several messages of a stream with one id the first counts, and those within `window_ms` of it, by the clock of the
    log, are dropped. Every reader compares the messages in their order and by the times of their records, so all decide
    alike.
    """

    def __init__(self, window_ms: int, first_ms: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        self.window_ms = window_ms
        self._first_ms: dict[str, int] = dict(first_ms)

    def __len__(self) -> int:
        return len(self._first_ms)

    def twice(self, dedup: str, time_ms: int) -> bool:
        """Return True if a message is a duplicate; else remember it as the first of its id."""
        self._forget(time_ms)
        if dedup in self._first_ms:
            return True
        self._first_ms[dedup] = time_ms
        return False

    def _forget(self, now_ms: int) -> None:
        """Forget ids whose window has passed. Times of a log never fall, so the oldest come first."""
        over = []
        for dedup, first_ms in self._first_ms.items():
            if now_ms - first_ms <= self.window_ms:
                break
            over.append(dedup)
        for dedup in over:
            del self._first_ms[dedup]

    def items(self) -> list[tuple[str, int]]:
        """Return the ids that a checkpoint has to contain.

        They are as of the newest message compared, not of the current time: the next message may be hardly younger.
        """
        return list(self._first_ms.items())
