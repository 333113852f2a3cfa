"""Rules for rewriting old messages, so that the storage of their terms can be reclaimed. Pure.

Messages wait until a member takes them, but storage is reclaimed by whole terms. So old messages that still wait are
appended again as a *set*: all unfinished messages up to `covers`, under their ids. Then everything up to `covers` is
trimmed at its old place.

- A set is a checkpoint of a shard's messages for all its groups, as its carrier saw them. Messages decided meanwhile
  are finished by their ids, in the set too. Readers read the newest complete set, then the stream from `covers + 1`.
- A set leaves out messages that the log shows as finished for each group. It never leaves out messages above the `read`
  of a group's last checkpoint, even if they were purged: the first of two duplicates must be seen by the reader that
  tells them apart.
- Each part expects the one before, so of two carriers one completes its set and the other's set has no end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bokiqueue.model.events import Id, Item
from bokiqueue.model.shard_state import Progress

PART_BYTES: Final = 256 * 1024
AROUND: Final = 64


class WaitingMessage(NamedTuple):
    """A waiting message.

    Attributes:
        pushed_ms: the time of its record.
    """

    id: Id
    pushed_ms: int
    item: Item


def is_finished(id: Id, group: Progress) -> bool:
    """Return True if a group with this progress needs a message no longer."""
    return id.seqnum <= group.read and group.is_finished(id)


def is_old(time_ms: int, now_ms: int, carry_ms: int) -> bool:
    """Return True if a record of that time is rewritten in a queue's turn: half as old as the record that brought the turn."""
    return now_ms - time_ms >= carry_ms // 2


def size_of(one: WaitingMessage) -> int:
    """Return the approximate size of a message in a part, in bytes."""
    item = one.item
    return AROUND + len(bytes(item.body)) + len(item.key or "") + len(item.dedup or "")


class RewriteTimer:
    """The times at which an owner rewrites its own records: at half of the age that none may reach. Times are of the log.

    Attributes:
        due: True if the records are to be rewritten.
    """

    def __init__(self, carry_ms: int) -> None:
        self.due = False
        self._carry_ms = carry_ms
        self._since_ms = 0

    def done(self, now_ms: int) -> None:
        """Note that all records are as young as `now_ms`."""
        self._since_ms = max(self._since_ms, now_ms)
        self.due = False

    def look(self, now_ms: int) -> bool:
        """Return True if rewriting is due from now on."""
        self.due = self.due or is_old(self._since_ms, now_ms, self._carry_ms)
        return self.due
