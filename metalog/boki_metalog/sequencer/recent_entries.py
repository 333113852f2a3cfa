"""The newest acknowledged entries of a term, encoded, for participants that connect or fall behind a little.

Bounded by count and bytes; the newest entry is always there, because until the next one is written the bookies cannot
prove it acknowledged (its LAC travels in its successor). Older ones are read from the ledger. Pure.
"""

from __future__ import annotations

from collections import deque
from itertools import islice


class RecentEntries:
    """Entries `first` to below `end` of one term, consecutive."""

    __slots__ = ("_bytes", "_bytes_limit", "_entries", "_entries_limit", "end", "first")

    def __init__(self, *, entries_limit: int, bytes_limit: int) -> None:
        assert entries_limit > 0
        self.first = self.end = 0
        self._entries: deque[bytes] = deque()
        self._entries_limit = entries_limit
        self._bytes_limit = bytes_limit
        self._bytes = 0

    def append(self, entry: bytes) -> None:
        """Keeps the next entry, and forgets the oldest over the limits."""
        self._entries.append(entry)
        self._bytes += len(entry)
        self.end += 1
        while self.end - self.first > self._entries_limit or (
            self._bytes > self._bytes_limit and self.end - self.first > 1
        ):
            self._bytes -= len(self._entries.popleft())
            self.first += 1

    def since(self, entry: int) -> list[bytes]:
        """Entries from `entry`, which must be in here or the end, to the end."""
        assert self.first <= entry <= self.end, (self.first, entry, self.end)
        return list(islice(self._entries, entry - self.first, None))
