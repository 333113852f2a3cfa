"""The queue of the paper (section 5.3): pushes and pops of a shard, in the order of the log. Pure.

A pop takes of the messages that were pushed before it and that no earlier pop took the next by priority, then the oldest
(`priority_rules`); where there is none it takes nothing, and never what is pushed later. Everybody who folds the two streams comes to the
same answers, so nobody has to ask anybody. What is taken is gone, also when who popped it dies before he looks: at most once.

A checkpoint is the first message that is not taken, and those above it that are, as of `covers`. Those of the grace are kept, and the
one before: whoever popped looks within the grace, from one that does not cover his pop (`below`). Trimmed is by that one before them
(`older`), and not by the last one but one, which on a busy shard is always too young.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from bokilib.checkpoint_rules import Whole
from bokiqueue.events import Id, Item
from bokiqueue.priority_rules import Ready


class Head(msgspec.Struct, array_like=True, frozen=True):
    """The data of a checkpoint.

    Attributes:
        head: all below it is taken. taken: of those above. passed: how many were taken since the oldest was.
    """

    head: Id
    taken: tuple[Id, ...] = ()
    passed: int = 0


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Head)


class PopState:
    """See the module. Invariant: what waits is at or above `head`.

    Attributes:
        position: all records at or below it were applied. taken: messages that pops of `mine` took, by the pop's place.
    """

    def __init__(self, head: Id, covers: int, gone: Iterable[Id] = (), passed: int = 0) -> None:
        """`gone`: above the head, and taken."""
        self.head = head
        self.position = covers
        self.taken: Final[dict[int, Item | None]] = {}
        self.pops = 0
        self._waiting: dict[Id, Item] = {}
        self._order: deque[Id] = deque()
        self._gone = set(gone)
        self._ready = Ready(passed)
        self._carried: deque[tuple[Id, Item]] = deque()
        self._read: deque[tuple[Id, Item]] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._read)

    def waiting(self) -> list[tuple[Id, Item]]:
        """What is not taken, oldest first."""
        self._comes(self.position)
        return sorted(self._waiting.items(), key=lambda one: one[0])

    def pushed(self, seqnum: int, items: tuple[Item, ...]) -> None:
        """One record of messages; those that were taken before the checkpoint are passed."""
        self._read.extend((Id(seqnum, index), item) for index, item in enumerate(items))
        self.position = max(self.position, seqnum)

    def carried(self, messages: Iterable[tuple[Id, Item]]) -> None:
        """Messages that were carried forward, in order: each comes in when the fold is at its place."""
        self._carried = deque(messages)
        self.reaches(self.position)

    def reaches(self, position: int) -> None:
        """All up to a place was applied."""
        self._comes(position)
        self.position = max(self.position, position)

    def _comes(self, position: int) -> None:
        """Messages up to a place may be taken."""
        for coming in (self._carried, self._read):
            while coming and coming[0][0].seqnum <= position:
                id, item = coming.popleft()
                if id >= self.head and id not in self._gone:
                    self._waiting[id] = item
                    self._ready.add(id, item.priority)
                self._order.append(id)

    def taken_from(self) -> tuple[Id, list[Id]]:
        """The head, and what is taken above it."""
        return self.head, sorted(self._gone)

    def popped(self, seqnum: int, *, mine: bool) -> None:
        """One pop."""
        self._comes(seqnum - 1)
        item: Item | None = None
        id = self._ready.next()
        if id is not None:
            self._ready.taken()
            item = self._waiting.pop(id)
            self._gone.add(id)
            self._raise_head()
        if mine:
            self.taken[seqnum] = item
        self.pops += 1
        self.position = max(self.position, seqnum)

    def _raise_head(self) -> None:
        """Forgets what is taken, at the beginning."""
        while self._order and self._order[0] not in self._waiting:
            id = self._order.popleft()
            self._gone.discard(id)
            self.head = max(self.head, Id(id.seqnum, id.number + 1))
        if self._order:
            self.head = max(self.head, self._order[0])

    def encode(self) -> bytes:
        """The data of a checkpoint."""
        return _encoder.encode(Head(self.head, tuple(sorted(self._gone)), self._ready.passed))


def decode(data: bytes, covers: int) -> PopState:
    """The state as of a checkpoint; messages from `head` on are read again."""
    kept = _decoder.decode(data)
    return PopState(kept.head, covers, kept.taken, kept.passed)


def below(wholes: Sequence[Whole], flying: Sequence[int]) -> Whole | None:
    """Which checkpoint to fold from, so that pops above these places are folded: the newest that covers none of them, or the oldest.

    Args:
        wholes: newest first.
    """
    lowest = min(flying, default=None)
    return next((one for one in wholes if lowest is None or one.covers <= lowest), wholes[-1] if wholes else None)


def older(wholes: Sequence[Whole], time_ms: int) -> Whole | None:
    """The newest that was made by then. Arguments as of `below`."""
    return next((one for one in wholes if one.time_ms <= time_ms), None)
