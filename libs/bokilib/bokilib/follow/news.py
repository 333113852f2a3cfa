"""What is new of streams, queried together: what is wanted in one turn of the event loop is one query.

    place, records = await news.since({"a": seqnum, "b": seqnum})

All callers of one turn get one answer, of one place. Who calls while a query is under way is in the next one: an answer is never older than
its call.

An error of one stream, of which something is gone, is raised to those who wanted that stream, and to nobody else.

A call from code of a workflow is refused at once. One from another event loop is refused by the book (`boki.WrongLoop`), and waits apart
until then: that loop may never run again, and holds up nobody else's query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import boki
from boki_common.errors import Trimmed
from boki_common.limits import READ_TAGS
from boki_common.runtime import confined
from bokilib.ports import BookPort, Tag


class NewRecords(NamedTuple):
    """What is new.

    Attributes:
        place: a snapshot of the session, as of which it is all.
        of: the records of each stream that has some, in order; perhaps also such as were seen, and of streams that others wanted.
    """

    place: int
    of: Mapping[Tag, Sequence[boki.Record]]


class _Wanted(NamedTuple):
    seen: Mapping[Tag, int]
    future: asyncio.Future[NewRecords]


class News:
    """See the module. Belongs to one event loop, and to one session of the book."""

    def __init__(self, book: BookPort) -> None:
        self._book = book
        self._wanted: dict[asyncio.AbstractEventLoop, list[_Wanted]] = {}
        self._queries: dict[asyncio.Task[None], None] = {}
        self.queries = 0
        """How many were sent so far."""

    async def since(self, seen: Mapping[Tag, int]) -> NewRecords:
        """What is new of streams, each seen up to somewhere, as of now for the session.

        Args:
            seen: up to 255 streams.

        Raises:
            Trimmed, Lost: as `book.read_since`; `error.tag` is one of these streams, or none.
        """
        confined.check(confined.A_CLIENT)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[NewRecords] = loop.create_future()
        if loop not in self._wanted:
            loop.call_soon(self._leave, loop)
        self._wanted.setdefault(loop, []).append(_Wanted(seen, future))
        return await future

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sends what was wanted in this turn, as few queries as hold it."""
        wanted = self._wanted.pop(loop)
        together: list[_Wanted] = []
        streams: dict[Tag, None] = {}
        for one in wanted:
            if together and len(streams.keys() | one.seen.keys()) > READ_TAGS:
                self._begin(together)
                together, streams = [], {}
            together.append(one)
            streams |= dict.fromkeys(one.seen)
        self._begin(together)

    def _begin(self, together: list[_Wanted]) -> None:
        task = asyncio.get_running_loop().create_task(self._query(together), name="bokilib news")
        self._queries[task] = None
        task.add_done_callback(lambda done: self._queries.pop(done, None))

    async def _query(self, together: list[_Wanted]) -> None:
        try:
            while together:
                together = [one for one in together if not one.future.done()]
                try:
                    found = await self._since(together)
                except Trimmed as trimmed:
                    stream = trimmed.facts.get("tag")
                    concerned = [one for one in together if stream in one.seen] or together
                    _fail(concerned, trimmed)
                    together = [one for one in together if one not in concerned]
                    continue
                for one in together:
                    if not one.future.done():
                        one.future.set_result(found)
                return
        except asyncio.CancelledError:
            for one in together:
                one.future.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - all waiters get it, and nobody else
            _fail(together, error)

    async def _since(self, together: Sequence[_Wanted]) -> NewRecords:
        seen: dict[Tag, int] = {}
        for one in together:
            for stream, seqnum in one.seen.items():
                seen[stream] = min(seqnum, seen.get(stream, seqnum))
        self.queries += 1
        place, records = await self._book.read_since(seen)
        found: dict[Tag, list[boki.Record]] = {}
        for record in records:
            for tag in record.tags:
                if tag in seen:
                    found.setdefault(tag, []).append(record)
        return NewRecords(place, found)


def _fail(concerned: Sequence[_Wanted], error: BaseException) -> None:
    for one in concerned:
        if not one.future.done():
            one.future.set_exception(error)
