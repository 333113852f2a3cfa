"""What reads wait for before they are answered: a position, a barrier, a record. And how many may.

    see          the view that a read asks for is reached here: the session's token, and what a sequencer proves to be ordered
    parked       a record of one of some streams appears (`parked_reads`)

A linearizable read first has the book's sequencer prove that its term is not over, by a *barrier*, and waits for what was ordered
when it asked: a sequencer that was fenced cannot (DESIGN §7, ADR 22). How many reads wait is bounded; so is how long they wait for
a position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from boki_common.engine.engine_protocol import Consistency, Query, Token, merge_tokens
from boki_common.errors import BokiError, Overloaded
from boki_common.ids import Position
from boki_logbook.read.lookup import Found
from boki_logbook.read.parked_reads import Arrival, ParkedReads
from boki_logbook.read.serving import Serving
from boki_logbook.settings import EngineSettings


class Waiting:
    """See the module."""

    def __init__(
        self, serving: Serving, parked: ParkedReads, settings: EngineSettings, *, beside: Callable[[], int]
    ) -> None:
        """`beside`: how many others wait, who share barriers."""
        self._count = 0
        self._beside = beside
        self.parked: Final = parked
        self._serving = serving
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._positions: dict[asyncio.Future[None], tuple[Token, int | None]] = {}

    def awaited(self) -> dict[int, Position]:
        """The highest position of each log that reads wait for, and that is not applied here."""
        found: dict[int, Position] = {}
        for token, _ in self._positions.values():
            merge_tokens(found, token)
        applied = self._serving.positions
        return {log: found[log] for log in sorted(found) if found[log] > applied.get(log, Position(0, 0))}

    def advanced(self, arrived: Sequence[Arrival]) -> None:
        """The index moved, by these batches among others."""
        if self._positions:
            for future, (token, of_book) in self._positions.items():
                if not future.done() and self._reached(token, of_book):
                    future.set_result(None)
        self.parked.applied(arrived)

    async def caught_up(self) -> None:
        """Waits, as long as it takes, until the index has what was ordered before this engine started."""
        while not self._serving.ready:
            future: asyncio.Future[None] = self._loop.create_future()
            self._positions[future] = {}, None
            try:
                await future
            finally:
                del self._positions[future]

    async def see(self, token: Token, book: int, consistency: Consistency) -> None:
        """Waits until the view that a read asks for is reached here. Raises Overloaded."""
        if consistency is Consistency.ANY:
            return
        if consistency is Consistency.LINEARIZABLE:
            with self.room():
                log, position = await self.barrier(book)
            token = dict(token)
            merge_tokens(token, {log: position})
        await self.reach_with_room(token, book)

    async def barrier(self, book: int) -> tuple[int, Position]:
        """A position that covers all that was acknowledged before; asked again while terms end. Raises Overloaded."""
        backoff = self._settings.backoff()
        last: BokiError | None = None
        try:
            async with asyncio.timeout(self._settings.position_wait_s):
                while True:
                    try:
                        return await self._serving.barrier(book)
                    except BokiError as error:
                        if not error.retryable:
                            raise
                        last = error
                    await asyncio.sleep(backoff.next())
        except TimeoutError as error:
            raise Overloaded(
                f"no sequencer of the book's log answered within {self._settings.position_wait_s} s ({last}): "
                "try again, or read with another consistency"
            ) from error

    async def reach_with_room(self, token: Token, book: int) -> None:
        """`reach`, as one of those of whom only so many may wait."""
        if not self._reached(token, book):
            with self.room():
                await self.reach(token, book)

    async def reach(self, token: Token, book: int) -> None:
        """Waits until a position is applied here. Raises Overloaded."""
        if self._reached(token, book):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._positions[future] = token, book
        try:
            async with asyncio.timeout(self._settings.position_wait_s):
                await future
        except TimeoutError as error:
            waited = "the session's position" if self._serving.ready else "the log's end: is its sequencer up?"
            raise Overloaded(
                f"the index of this engine is at {_readable(self._serving.positions)} and did not reach {waited} "
                f"({_readable(token)}) within {self._settings.position_wait_s} s: try again, or another engine"
            ) from error
        finally:
            del self._positions[future]

    def _reached(self, token: Token, book: int | None) -> bool:
        """Without a book: what was ordered before this engine started is applied."""
        return self._serving.ready if book is None else self._serving.view_after(token, book) is not None

    async def records(self, query: Query, tags: Sequence[int], look: Callable[..., Found]) -> Found:
        """Waits until one of the streams has a record in the range, is trimmed beyond what was looked at, or the time is over.

        Args:
            look: records and gaps of the range, of what is `covered`; below `looked` all was looked at, below `lost_from` nobody
                is woken by what was lost.
        """
        begin, parked, book = query.start, None, query.book
        _, covered = self._serving.view_of(book)
        try:
            with self.room():
                async with asyncio.timeout(query.wait_ms / 1000):
                    while True:
                        # Whatever is newer than all that is shown may be in the range; what is shown is not.
                        begin = max(query.start, covered + 1)
                        parked = self.parked.park(book, tags, begin)
                        try:
                            looked = max(begin, await parked.woken)
                        finally:
                            self.parked.leave(parked)
                        _, covered = self._serving.view_of(book)
                        found = look(covered, looked=looked, lost_from=begin)
                        if not found.nothing:
                            return found
        except TimeoutError:
            _, covered = self._serving.view_of(book)
            looked = max(begin, covered + 1)  # nobody woke it: all that came was of other streams
            if parked is not None and parked.woken.done() and not parked.woken.cancelled():
                looked = max(begin, parked.woken.result())  # but in the turn of the time-out
            return look(covered, looked=looked, lost_from=begin)

    @contextmanager
    def room(self) -> Iterator[None]:
        """One read waits within. Raises Overloaded."""
        self.check_room()
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    @property
    def all(self) -> int:
        """How many reads wait."""
        return self._count + self._beside()

    def check_room(self, reads: int = 1) -> None:
        """Whether so many more may wait. Raises Overloaded."""
        waiting = self.all
        if waiting + reads > self._settings.parked_reads:
            raise Overloaded(f"{waiting} reads wait in this engine already: try again later", found=waiting)


def _readable(token: Token) -> str:
    return (
        ", ".join(f"log {log}: term {term} entry {entry}" for log, (term, entry) in sorted(token.items())) or "nothing"
    )
