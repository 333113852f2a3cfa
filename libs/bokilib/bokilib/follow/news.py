"""Batched queries for new records of streams: all calls in one turn of the event loop share one query.

    place, records = await news.since({"a": seqnum, "b": seqnum})

- All callers of one turn get the same answer, as of one position. A call during a query joins the next one, so no answer is older than
  its call.
- If records of one stream were trimmed, the error goes to the callers that asked for that stream. The others get their answer.
- A call from workflow code is refused at once. A call from another event loop is batched apart and refused by the book
  (`boki.WrongLoop`): that loop may never run again, and must not delay the queries of this one.
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
    """The answer to a query for new records.

    Attributes:
        place: the position as of which the answer is complete.
        of: the new records of each stream that has some, in order. It may include records that the caller has seen, and streams that
            only other callers asked for.
    """

    place: int
    of: Mapping[Tag, Sequence[boki.Record]]


class _Wanted(NamedTuple):
    seen: Mapping[Tag, int]
    future: asyncio.Future[NewRecords]


class News:
    """The queries of one session of a book. Belongs to one event loop."""

    def __init__(self, book: BookPort) -> None:
        self._book = book
        self._wanted: dict[asyncio.AbstractEventLoop, list[_Wanted]] = {}
        self._queries: dict[asyncio.Task[None], None] = {}
        self.queries = 0
        """Queries sent so far."""

    async def since(self, seen: Mapping[Tag, int]) -> NewRecords:
        """Return the records of streams above the given seqnums, as of now for the session.

        Args:
            seen: for each stream, up to 255, the seqnum up to which the caller has read it.

        Raises:
            Trimmed: records above such a seqnum were trimmed; `error.facts["tag"]` names the stream.
            Lost: records were lost.
        """
        confined.check(confined.A_CLIENT)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[NewRecords] = loop.create_future()
        if loop not in self._wanted:
            loop.call_soon(self._leave, loop)
        self._wanted.setdefault(loop, []).append(_Wanted(seen, future))
        return await future

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send the calls of this turn, as many in each query as its limit of streams allows."""
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
        except BaseException as error:  # noqa: BLE001 - raised by the future of each waiting caller
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
