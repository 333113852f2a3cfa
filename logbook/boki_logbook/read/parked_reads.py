"""Reads that wait for records, by book and tag: a cut wakes those that wait for what it brought, and costs the others nothing.

What is applied is reported batch by batch, in order, before anybody else has a turn. A batch is looked at only if somebody
waits: its tags are compared with those waited for as sets, and a stream that both name is looked up once, whoever waits for it.
A read that waits for several tags is woken by the first.

Invariant: of the streams that a parked read waits for, nothing that it has not seen is below what the last batch reported began at.
So whoever is woken has looked at all before the batch that woke it, and who is not woken at all that is applied: a trim of what came and
went under other tags is no gap to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from boki_common.ids import ALL_RECORDS
from boki_common.records.record_batch import RecordBatch


class Arrival(NamedTuple):
    """A batch that was applied."""

    batch: RecordBatch
    first_seqnum: int


@dataclass(slots=True, eq=False)
class Parked:
    """One read that waits, until `woken` has the place before which it has seen all of its streams."""

    book: int
    tags: Sequence[int]
    start: int
    woken: asyncio.Future[int]


class ParkedReads:
    """See the module. How many wait is bounded by who parks them."""

    def __init__(self, newest: Callable[[int, int], int]) -> None:
        """`newest`: of a stream of a book, the newest record that ever joined it."""
        self._newest = newest
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, dict[int, dict[Parked, None]]] = {}
        """Tag → book → who waits."""

    def park(self, book: int, tags: Sequence[int], start: int) -> Parked:
        """Waits for a record at or above `start`, of which none is there; tag 0 is any of the book. Whoever parks it leaves too."""
        parked = Parked(book, tags, start, self._loop.create_future())
        for tag in tags:
            self._waiting.setdefault(tag, {}).setdefault(book, {})[parked] = None
        return parked

    def leave(self, parked: Parked) -> None:
        """It waits no more. Idempotent."""
        book = parked.book
        for tag in parked.tags:
            books = self._waiting.get(tag)
            if books is None or parked not in books.get(book, ()):
                continue
            del books[book][parked]
            if not books[book]:
                del books[book]
                if not books:
                    del self._waiting[tag]

    def applied(self, arrivals: Sequence[Arrival]) -> None:
        """These were applied, one after another: wakes who waited for something of them."""
        for arrival in arrivals:
            if not self._waiting:
                return
            batch = arrival.batch
            named = self._waiting.keys() & batch.tags.tolist() if batch.tag_count else set()
            if not named and ALL_RECORDS not in self._waiting:
                continue
            books = dict.fromkeys(batch.books())
            for tag in [*([ALL_RECORDS] if ALL_RECORDS in self._waiting else ()), *sorted(named)]:
                self._wake(tag, books, arrival.first_seqnum)

    def _wake(self, tag: int, books: dict[int, None], first_seqnum: int) -> None:
        of_tag = self._waiting.get(tag, {})
        for book in [book for book in books if book in of_tag] if len(books) < len(of_tag) else list(of_tag):
            if book not in books:
                continue
            newest = self._newest(book, tag)  # of a record that lost, or of another book, there is none
            for parked in list(of_tag.get(book, ())):
                if newest >= parked.start:
                    self.leave(parked)
                    if not parked.woken.done():
                        parked.woken.set_result(max(first_seqnum, 1))
