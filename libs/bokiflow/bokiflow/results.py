"""Who waits for which workflow's end. One cursor follows all of those that run elsewhere."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

import boki
from boki_common.errors import BokiError
from bokiflow.errors import ResultExpired
from bokiflow.flow_events import PICKER, Ended
from bokilib import tags
from bokilib.follower import Follower
from bokilib.log import Log, Read


class Results:
    """See the module."""

    def __init__(self, log: Log) -> None:
        self._follower: Final = Follower(log)
        self._waiting: dict[str, list[asyncio.Future[Ended]]] = {}
        self._followed: dict[str, None] = {}
        self._failed: BaseException | None = None

    async def __aenter__(self) -> Results:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._follower.__aexit__(kind, error, trace)

    def wait(self, id: str, start: int, *, follow: bool) -> asyncio.Future[Ended]:
        """How it ended, when it has.

        Args:
            start: seqnum of its beginning, at least. follow: it runs elsewhere; else `ended` is called.
        """
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            future.set_exception(self._failed)
            return future
        self._waiting.setdefault(id, []).append(future)
        if follow:
            self.follow(id, start)
        return future

    def follow(self, id: str, start: int) -> None:
        """It runs elsewhere from now on, if anybody waits for it."""
        if id in self._waiting and id not in self._followed:
            self._followed[id] = None
            self._follower.add(tags.flow_own(id), max(1, start), lambda item: self._read(id, item))

    def _read(self, id: str, item: Read | boki.Gap | BokiError) -> None:
        if isinstance(item, Read):
            for event in PICKER.of(item.record.seqnum, item.envelope, about=id):
                if isinstance(event, Ended):
                    self.ended(id, event)
        elif isinstance(item, boki.Gap):
            self.failed(id, ResultExpired(f"workflow {id!r} ended, and its result is not kept any more", id=id))
        else:
            self.failed(id, item)

    def ended(self, id: str, ended: Ended) -> None:
        """It ended."""
        for future in self._take(id):
            if not future.done():
                future.set_result(ended)

    def failed(self, id: str, error: BaseException) -> None:
        """Nobody can say."""
        for future in self._take(id):
            if not future.done():
                future.set_exception(error)

    def failed_all(self, error: BaseException) -> None:
        """This process cannot go on."""
        self._failed = error
        for id in list(self._waiting):
            self.failed(id, error)

    def _take(self, id: str) -> list[asyncio.Future[Ended]]:
        if self._followed.pop(id, "") is None:
            self._follower.discard(tags.flow_own(id))
        return self._waiting.pop(id, [])
