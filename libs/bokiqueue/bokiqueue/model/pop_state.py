"""The queue of the paper (section 5.3): pushes and pops of a shard, in the order of the log. Pure.

A pop takes one of the messages that were pushed before it and not taken by an earlier pop: the next by priority, then
the oldest (`priority_rules`). If there is none it takes nothing, and never a message pushed later. All processes that
fold the two streams reach the same result, so no coordination is needed. A taken message is gone even if its popper
dies before it looks: delivery is at most once.

A checkpoint has the first message that is not taken, and the taken ones above it, as of `covers`. Checkpoints within
the grace are kept, and the one before them: a popper looks for its result within the grace, from a checkpoint that does
not cover its pop (`below`). Streams are trimmed by the checkpoint before those (`older`), not by the last but one,
which is always too young on a busy shard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from bokilib.retention.checkpoint_rules import WholeCheckpoint
from bokiqueue.model.events import Id, Item
from bokiqueue.model.priority_rules import ReadyMessages


class PopCheckpoint(msgspec.Struct, array_like=True, frozen=True):
    """The data of a checkpoint.

    Attributes:
        head: all messages below it are taken.
        taken: taken messages above it.
        passed: how many messages were taken since the oldest one was.
    """

    head: Id
    taken: tuple[Id, ...] = ()
    passed: int = 0


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(PopCheckpoint)


class PopState:
    """The state of a popped shard. See the module.

    Invariant: waiting messages are at or above `head`.

    Attributes:
        position: all records up to here are applied.
        taken: messages taken by pops of `mine`, by the seqnum of the pop.
    """

    def __init__(self, head: Id, covers: int, gone: Iterable[Id] = (), passed: int = 0) -> None:
        """Begin as of a checkpoint; `gone` are taken messages above the head."""
        self.head = head
        self.position = covers
        self.taken: Final[dict[int, Item | None]] = {}
        self.pops = 0
        self._waiting: dict[Id, Item] = {}
        self._order: deque[Id] = deque()
        self._gone = set(gone)
        self._ready = ReadyMessages(passed)
        self._carried: deque[tuple[Id, Item]] = deque()
        self._read: deque[tuple[Id, Item]] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._read)

    def waiting(self) -> list[tuple[Id, Item]]:
        """Return messages that are not taken, oldest first."""
        self._comes(self.position)
        return sorted(self._waiting.items(), key=lambda one: one[0])

    def pushed(self, seqnum: int, items: tuple[Item, ...]) -> None:
        """Add the messages of one record; those taken before the checkpoint are skipped."""
        self._read.extend((Id(seqnum, index), item) for index, item in enumerate(items))
        self.position = max(self.position, seqnum)

    def carried(self, messages: Iterable[tuple[Id, Item]]) -> None:
        """Add rewritten messages, in order. Each takes effect when the fold reaches its seqnum."""
        self._carried = deque(messages)
        self.reaches(self.position)

    def reaches(self, position: int) -> None:
        """Note that all records up to a position are applied."""
        self._comes(position)
        self.position = max(self.position, position)

    def _comes(self, position: int) -> None:
        """Make messages up to a position available to pops."""
        for coming in (self._carried, self._read):
            while coming and coming[0][0].seqnum <= position:
                id, item = coming.popleft()
                if id >= self.head and id not in self._gone:
                    self._waiting[id] = item
                    self._ready.add(id, item.priority)
                self._order.append(id)

    def taken_from(self) -> tuple[Id, list[Id]]:
        """Return the head, and the taken messages above it."""
        return self.head, sorted(self._gone)

    def popped(self, seqnum: int, *, mine: bool) -> None:
        """Apply one pop."""
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
        """Forget taken messages at the beginning."""
        while self._order and self._order[0] not in self._waiting:
            id = self._order.popleft()
            self._gone.discard(id)
            self.head = max(self.head, Id(id.seqnum, id.number + 1))
        if self._order:
            self.head = max(self.head, self._order[0])

    def encode(self) -> bytes:
        """Return the data of a checkpoint."""
        return _encoder.encode(PopCheckpoint(self.head, tuple(sorted(self._gone)), self._ready.passed))


def decode(data: bytes, covers: int) -> PopState:
    """Return the state as of a checkpoint; messages from `head` on have to be read again."""
    kept = _decoder.decode(data)
    return PopState(kept.head, covers, kept.taken, kept.passed)


def below(wholes: Sequence[WholeCheckpoint], flying: Sequence[int]) -> WholeCheckpoint | None:
    """Return the newest checkpoint that covers none of these places, or the oldest one.

    Args:
        wholes: checkpoints, newest first.
        flying: places of pops whose result is not known; folding from the checkpoint passes them again.
    """
    lowest = min(flying, default=None)
    return next((one for one in wholes if lowest is None or one.covers <= lowest), wholes[-1] if wholes else None)


def older(wholes: Sequence[WholeCheckpoint], time_ms: int) -> WholeCheckpoint | None:
    """Return the newest checkpoint made at or before `time_ms`, or None. `wholes` is as in `below`."""
    return next((one for one in wholes if one.time_ms <= time_ms), None)
