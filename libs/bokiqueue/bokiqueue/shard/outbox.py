"""Events that the owner of a shard has to append while a record of it is in flight. Pure.

One append of a shard is in flight; decisions made meanwhile go together as the next record: ACKs, NACKs and the next
DELIVER. A dead letter is appended with its push to the other queue, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bokilib.records.contribution import Contribution
from bokiqueue.model.events import Acked, ConsumerEvent, Dead, Delivered, Id, Item, Nacked

DEAD_BYTES: Final = 256 * 1024
"""The most bytes of dead letters in one record; the rest waits for the next record."""


AROUND: Final = 128
ID_BYTES: Final = 16


class Letter:
    """A message that is given up, with its push to the queue of dead letters."""

    __slots__ = ("id", "part", "size")

    def __init__(self, id: Id, item: Item, part: Contribution | None, more: int = 0) -> None:
        """Measure the letter; `more` is the size of its error and stack."""
        self.id = id
        self.part = part
        self.size = len(bytes(item.body)) + more


class Outbox:
    """Events to append together.

    Attributes:
        acks: messages that are finished once the record is in the log.
        nacks: (id, failed attempts, due time).
        letters: dead letters, finished likewise.
    """

    def __init__(self) -> None:
        self.delivered: Final[list[Delivered]] = []
        self.acks: Final[list[Id]] = []
        self.nacks: Final[list[tuple[Id, int, int]]] = []
        self.letters: Final[list[Letter]] = []

    def __bool__(self) -> bool:
        return bool(self.delivered or self.acks or self.nacks or self.letters)

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        ids = len(self.acks) + 2 * len(self.nacks) + sum(len(one.held) + len(one.again) + 1 for one in self.delivered)
        return AROUND + ID_BYTES * ids + sum(letter.size + AROUND for letter in self.letters)

    def overflow(self) -> Outbox:
        """Remove and return the dead letters that do not fit one record."""
        rest = Outbox()
        size = 0
        for number, letter in enumerate(self.letters):
            size += letter.size
            if size > DEAD_BYTES and number:
                rest.letters.extend(self.letters[number:])
                del self.letters[number:]
                break
        return rest

    def contribution(self, id: str, tag: str, expect: dict[str, int | None]) -> Contribution:
        """Return the record.

        Args:
            id: the id of the consumer stream.
            tag: the tag of the consumer stream.
            expect: the owner's claim.
        """
        events: list[ConsumerEvent] = list(self.delivered)
        if self.acks:
            events.append(Acked(id, tuple(self.acks)))
        if self.nacks:
            events.append(
                Nacked(
                    id, tuple((nacked.seqnum, nacked.number, attempt, due_ms) for nacked, attempt, due_ms in self.nacks)
                )
            )
        if self.letters:
            events.append(Dead(id, tuple(letter.id for letter in self.letters)))
        parts: Sequence[Contribution] = [letter.part for letter in self.letters if letter.part is not None]
        return Contribution(
            tuple(dict.fromkeys((tag, *(one for part in parts for one in part.tags)))),
            expect,
            (*events, *(event for part in parts for event in part.events)),
        )
