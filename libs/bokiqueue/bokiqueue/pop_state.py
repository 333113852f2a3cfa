"""The queue of the paper (section 5.3): pushes and pops of a shard, in the order of the log. Pure.

A pop takes the oldest message that was pushed before it and that no earlier pop took; where there is none it takes nothing, and never
what is pushed later. Everybody who folds the two streams comes to the same answers, so nobody has to ask anybody. What is taken is
gone, also when who popped it dies before he looks: at most once.

A checkpoint is the first message that is not taken, as of `covers`. Two are kept: whoever popped looks within the queue's grace.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from bokiqueue.events import Id, Item


class Head(msgspec.Struct, array_like=True, frozen=True):
    """The data of a checkpoint: all below it is taken."""

    head: Id


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Head)


class PopState:
    """See the module. Invariant: what waits is in the order of the log, and at or above `head`.

    Attributes:
        position: all records at or below it were applied. taken: messages that pops of `mine` took, by the pop's place.
    """

    def __init__(self, head: Id, covers: int) -> None:
        self.head = head
        self.position = covers
        self.taken: Final[dict[int, Item | None]] = {}
        self.pops = 0
        self._waiting: deque[tuple[Id, Item]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[tuple[Id, Item]]:
        """What is not taken, oldest first."""
        return list(self._waiting)

    def pushed(self, seqnum: int, items: tuple[Item, ...]) -> None:
        """One record of messages; those that were taken before the checkpoint are passed."""
        for index, item in enumerate(items):
            id = Id(seqnum, index)
            if id >= self.head:
                self._waiting.append((id, item))
        self.position = max(self.position, seqnum)

    def popped(self, seqnum: int, *, mine: bool) -> None:
        """One pop."""
        item: Item | None = None
        if self._waiting and self._waiting[0][0].seqnum < seqnum:
            id, item = self._waiting.popleft()
            self.head = self._waiting[0][0] if self._waiting else Id(id.seqnum, id.number + 1)
        if mine:
            self.taken[seqnum] = item
        self.pops += 1
        self.position = max(self.position, seqnum)

    def encode(self) -> bytes:
        """The data of a checkpoint."""
        return _encoder.encode(Head(self.head))


def decode(data: bytes, covers: int) -> PopState:
    """The state as of a checkpoint; messages from `head` on are read again."""
    return PopState(_decoder.decode(data).head, covers)
