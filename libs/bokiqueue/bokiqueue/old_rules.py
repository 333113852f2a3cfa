"""Which old messages are carried forward, so that the storage of their terms comes back, and in what pieces. Pure.

Messages wait for as long as nobody takes them; storage goes by whole terms. So what is old and waits is appended anew as a *set*: the
messages up to `covers` that somebody has to do still, under the ids that they have. Then everything up to `covers` is trimmed where it was.

- A set is a checkpoint of a shard's messages, for all its groups, as of whatever its carrier saw: what is decided meanwhile is over by
  its id, in the set too. Who reads messages reads the newest set that is whole, and from `covers + 1` on.
- Left out is what is over for each group by the log. What a group's last checkpoint had not come to (`read`) is never left out: the
  first of two copies has to be seen by who separates them.
- Parts follow each other, each expecting the one before: of two who carry one set is whole, and the other's has no end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bokiqueue.events import Id, Item
from bokiqueue.shard_state import Progress

PART_BYTES: Final = 256 * 1024
AROUND: Final = 64


class Waits(NamedTuple):
    """A message that waits. `pushed_ms`: its record's time."""

    id: Id
    pushed_ms: int
    item: Item


def is_over(id: Id, group: Progress) -> bool:
    """Whether a message is not needed for a group any more, that has come so far by the log."""
    return id < group.floor or (id.seqnum <= group.read and group.is_over(id))


def is_old(time_ms: int, now_ms: int, carry_ms: int) -> bool:
    """Whether what is of then is carried when a queue's turn has come: half as old as what makes it come."""
    return now_ms - time_ms >= carry_ms // 2


def size_of(one: Waits) -> int:
    """Its bytes in a part, about."""
    item = one.item
    return AROUND + len(bytes(item.body)) + len(item.key or "") + len(item.dedup or "")


class Renewal:
    """When an owner carries what is his: at half of the age that nothing gets. Times are of the log.

    Attributes:
        due: whether it is to be done.
    """

    def __init__(self, carry_ms: int) -> None:
        self.due = False
        self._carry_ms = carry_ms
        self._since_ms = 0

    def done(self, now_ms: int) -> None:
        """All is as young as that."""
        self._since_ms = max(self._since_ms, now_ms)
        self.due = False

    def look(self, now_ms: int) -> bool:
        """Whether it is due from now on."""
        self.due = self.due or is_old(self._since_ms, now_ms, self._carry_ms)
        return self.due


class Parts:
    """Collects what goes into one part."""

    def __init__(self) -> None:
        self.items: list[Waits] = []
        self._size = 0

    def takes(self, one: Waits) -> bool:
        """Whether there is room for it; then it is in."""
        size = size_of(one)
        if self.items and self._size + size > PART_BYTES:
            return False
        self.items.append(one)
        self._size += size
        return True

    def cut(self) -> list[Waits]:
        """What is in; then nothing is."""
        found, self.items, self._size = self.items, [], 0
        return found
