"""Which runs of an entry are not of the slots that its term orders, and what becomes of them. Pure.

A term orders the books of its slots, and no other. An engine that is broken, or means harm, may write a run of another book into
its entry, with every checksum right. Logs know no order between each other: whether such a run came before or after what the
book's own log has ordered, each engine would see otherwise. So it is no part of the book:

- It keeps its positions, and is a loser: no stream has its records, no number of its writer is decided, nothing is remembered.
- So is a TRIM or EXPIRE of such a book in the log's commands: it changes nothing (a sequencer orders none).
- Readers of the book get no gap: nothing that is the book's is missing, and the place is in no order of the book.

The rule looks at the entry and at the slots of its term, which never change, and which index snapshots have too: so every engine
decides the same, wherever it began. An engine that indexes some slots passes over the runs of all others in the same way.

A term that orders all slots is not looked at. Elsewhere one look at a set says of all runs of an entry that they belong there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_common.ids import slot_of
from boki_common.records.record_batch import RecordBatch, Run

RUN_FOREIGN: Final = 1 << 31
"""Flag of a run that nothing is decided of; batches that are read cannot have it."""
BOOKS: Final = 131_072
"""Books of a term that are known to belong there; above it all are looked at anew."""


class ForeignRuns(NamedTuple):
    """What an entry had that is not of its term's slots, for people."""

    term: int
    shard: int
    entry: int
    records: int
    book: int
    """Of the first of them."""

    def __str__(self) -> str:
        return (
            f"entry {self.entry} of shard {self.shard} of term {self.term} has {self.records} records of books that the term does "
            f"not order, the first ones of book {self.book} of slot {slot_of(self.book)}: they joined nothing"
        )


class SlotGuard:
    """The books of some slots."""

    def __init__(self, slots: int) -> None:
        """`slots`: as the bits of a number."""
        self.slots: Final = slots
        self._known: set[int] = set()
        """Asked, never walked: its order reaches nobody."""

    def foreign(self, batch: RecordBatch) -> Sequence[int]:
        """The runs of other slots, by their numbers in the batch; nearly always none."""
        books = batch.books()
        known = self._known
        if known.issuperset(books):
            return ()
        if len(known) > BOOKS:
            known.clear()
        slots, found = self.slots, []
        for at, book in enumerate(books):
            if book in known:
                continue
            if slots >> slot_of(book) & 1:
                known.add(book)
            else:
                found.append(at)
        return found


def passed_over(runs: Sequence[Run], foreign: Sequence[int]) -> list[Run]:
    """The runs, some of them such that `Verdicts.decide` decides nothing of them."""
    changed = list(runs)
    for at in foreign:
        changed[at] = runs[at]._replace(flags=runs[at].flags | RUN_FOREIGN)
    return changed
