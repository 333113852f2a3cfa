"""Who waits for which workflow's end. One cursor follows all of those that run elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError
from bokiflow import inspection
from bokiflow.errors import ResultExpired
from bokiflow.flow_events import PICKER, Ended
from bokiflow.instance_state import Held, held
from bokilib import tags
from bokilib.follower import Follower
from bokilib.log import Log, Read

SEQNUM_END: Final = 2**63


class _Waiting(NamedTuple):
    """One who waits. `start`: seqnum of the beginning that he means, 0: whichever."""

    start: int
    future: asyncio.Future[Ended]


class Results:
    """See the module."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log
        self._follower: Final = Follower(log)
        self._waiting: dict[str, list[_Waiting]] = {}
        self._followed: dict[str, None] = {}
        self._looking: dict[asyncio.Task[None], None] = {}
        self._failed: BaseException | None = None

    async def __aenter__(self) -> Results:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in list(self._looking):
            task.cancel()
        await self._follower.__aexit__(kind, error, trace)

    def wait(self, id: str, start: int, *, follow: bool) -> asyncio.Future[Ended]:
        """How it ended, when it has.

        Args:
            start: seqnum of its beginning, 0: of whichever workflow has the id. follow: it runs elsewhere; else `ended` is called.
        """
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            future.set_exception(self._failed)
            return future
        self._waiting.setdefault(id, []).append(_Waiting(start, future))
        if id in self._followed:
            self._look(id)  # what was read before is not read again
        elif follow:
            self.follow(id, start)
        return future

    def follow(self, id: str, start: int) -> None:
        """It runs elsewhere from now on, if anybody waits for it."""
        if id in self._waiting and id not in self._followed:
            self._followed[id] = None
            self._follower.add(tags.flow_own(id), max(1, start), lambda item: self._read(id, item))

    def _read(self, id: str, item: Read | boki.Gap | BokiError) -> None:
        if isinstance(item, Read):
            state = held(item.record.seqnum, PICKER.of(item.record.seqnum, item.envelope, about=id))
            if state is not None:
                self._resolve(id, state)
        elif isinstance(item, boki.Gap):
            self._look(id)
        else:
            self.failed(id, item)

    def _resolve(self, id: str, state: Held) -> None:
        if state.ended is not None and not state.large:
            self.ended(id, state.ended)
        elif state.ended is not None:
            self._look(id)
        elif state.start:
            self._expired(id, state.start)

    def _look(self, id: str) -> None:
        """Something may be trimmed: what is there now has the status."""

        async def look() -> None:
            try:
                state = await inspection.newest(self._log, id)
                if state is None:
                    self._expired(id, SEQNUM_END)
                    return
                ended = await inspection.outcome_of(self._log, id, state)
                if ended is not None:
                    self.ended(id, ended)
                elif state.start:
                    self._expired(id, state.start)
            except BokiError as error:
                self.failed(id, error)

        task = asyncio.get_running_loop().create_task(look(), name="bokiflow results")
        self._looking[task] = None
        task.add_done_callback(lambda done: self._looking.pop(done, None))

    def _expired(self, id: str, start: int) -> None:
        """Whoever waits for what began before that has it no more."""
        for one in self._take(id, lambda one: 0 < one.start < start):
            _fail(one, ResultExpired(f"workflow {id!r} ended, and its result is not kept any more", id=id))

    def ended(self, id: str, ended: Ended) -> None:
        """It ended."""
        self._expired(id, ended.start)
        for one in self._take(id, lambda one: one.start in (0, ended.start)):
            if not one.future.done():
                one.future.set_result(ended)

    def failed(self, id: str, error: BaseException) -> None:
        """Its end cannot be read."""
        for one in self._take(id, lambda _: True):
            _fail(one, error)

    def failed_all(self, error: BaseException) -> None:
        """This process cannot go on."""
        self._failed = error
        for id in list(self._waiting):
            self.failed(id, error)

    def _take(self, id: str, which: Callable[[_Waiting], bool]) -> list[_Waiting]:
        waiting = self._waiting.get(id, [])
        taken = [one for one in waiting if which(one)]
        left = [one for one in waiting if not which(one)]
        if left:
            self._waiting[id] = left
        elif waiting:
            del self._waiting[id]
        if not left and self._followed.pop(id, "") is None:
            self._follower.discard(tags.flow_own(id))
        return taken


def _fail(one: _Waiting, error: BaseException) -> None:
    if not one.future.done():
        one.future.set_exception(error)
