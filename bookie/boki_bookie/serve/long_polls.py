"""Long polls of one v3 connection: reads of entry -1 that wait until the LAC of their ledger is above the one they name.

| what happens | answered |
|---|---|
| the LAC is above, now or later | it, when that was, and the entry after the one named, if stored here |
| the time-out, or the ledger is fenced | the LAC |
| no such ledger, a ledger in limbo | at once NO_LEDGER, UNKNOWN_LEDGER_STATE |

A poll is looked at whenever something of its ledger changes, and waits until it is answered. It knows nothing of frames: a
request comes in, `Answers` gets its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from boki_bookie.entries.ledger_index import NO_ENTRY, Place
from boki_bookie.serve.lac import LacWatchers, StoredLacs, explicit_lac_of, lac_of
from boki_bookie.storage.storage_reads import Found
from boki_bookie.storage.storage_router import Store
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import ReadRequest
from boki_common.errors import StorageError
from boki_common.runtime.ports import Clock

LONG_POLL_S: Final = 600.0
"""The longest that a long poll waits, whatever its client asks for."""
LONG_POLLS_LIMIT: Final = 1_024
"""Long polls of one connection that wait; more are refused with TOO_MANY_REQUESTS."""


Spawn = Callable[[Coroutine[None, None, None], str], None]
"""Runs work under a name."""


class Answers(Protocol):
    """The connection's answers to reads."""

    @property
    def closed(self) -> bool: ...

    def answer(
        self,
        request: ReadRequest,
        status: V2Status,
        body: memoryview | None,
        lac: int | None,
        lac_time_ms: int | None = None,
    ) -> None: ...

    def answer_loaded_later(self, request: ReadRequest, found: Found, lac: int, lac_time_ms: int | None) -> None: ...


class _LongPoll:
    """One read that waits."""

    def __init__(self, polls: LongPolls, request: ReadRequest, lac: int) -> None:
        self.request = request
        self._polls = polls
        self._lac = lac
        seconds = min(request.timeout_ms / 1000, LONG_POLL_S)
        self.timer = asyncio.get_running_loop().call_later(seconds, self.look, True)

    def look(self, over: bool) -> None:
        """Something changed; `over` ends the wait whatever the LAC is."""
        self._lac = max(self._lac, self._polls.lac_now(self.request.ledger_id))
        if over or self._lac > self.request.previous_lac:
            self._polls.ended(self, self._lac)


class LongPolls:
    """See the module. Of one connection."""

    def __init__(
        self,
        storage: Store,
        answers: Answers,
        *,
        stored_lacs: StoredLacs,
        watchers: LacWatchers,
        clock: Clock | None,
        spawn: Spawn,
    ) -> None:
        """`clock` gives the time at which the LAC advanced; `spawn` runs what has to wait for the disk first."""
        self._storage = storage
        self._answers = answers
        self._stored_lacs = stored_lacs
        self._watchers = watchers
        self._clock = clock
        self._spawn = spawn
        self._waiting: dict[_LongPoll, None] = {}

    @property
    def are_full(self) -> bool:
        return len(self._waiting) >= LONG_POLLS_LIMIT or self._watchers.is_full

    def begin(self, request: ReadRequest) -> None:
        """Takes one; it is answered once, but for a connection that ends before."""
        last = self._storage.of(request.ledger_id).look_up(request.ledger_id, NO_ENTRY)
        if last.status in (V2Status.NO_LEDGER, V2Status.UNKNOWN_LEDGER_STATE):
            self._answers.answer(request, last.status, None, None)
        elif last.status is V2Status.OK and self.known_lac(request.ledger_id, last) is None:
            assert last.place is not None
            self._spawn(self._load_and_wait(request, last.place), "bookie long poll")
        else:
            self._wait(request)

    def connection_lost(self) -> None:
        """Nobody waits any more."""
        for poll in list(self._waiting):
            self._forget(poll)

    def known_lac(self, ledger_id: int, last: Found) -> int | None:
        """The LAC that the last entry carries, if that needs no disk."""
        if last.body is not None:
            return lac_of(last.body)
        assert last.place is not None, "a ledger that holds an entry has a last one"
        return self._stored_lacs.of(ledger_id, last.place.entry_id)

    def lac_now(self, ledger_id: int) -> int:
        """What is known of the LAC without touching the disk; -1 for nothing."""
        storage = self._storage.of(ledger_id)
        last = storage.look_up(ledger_id, NO_ENTRY)
        known = self.known_lac(ledger_id, last) if last.status is V2Status.OK else None
        return max(NO_ENTRY if known is None else known, explicit_lac_of(storage.explicit_lac(ledger_id)))

    def ended(self, poll: _LongPoll, lac: int) -> None:
        """For the polls themselves: its wait is over."""
        self._forget(poll)
        clock = self._clock if lac > poll.request.previous_lac else None
        self._answer(poll.request, lac, None if clock is None else clock.now_ms())

    async def _load_and_wait(self, request: ReadRequest, place: Place) -> None:
        last = (await self._storage.load([(request.ledger_id, place)]))[0]
        if isinstance(last, StorageError):
            self._answers.answer(request, V2Status.IO_ERROR, None, None)
            return
        self._stored_lacs.remember(request.ledger_id, place.entry_id, last)
        self._wait(request)

    def _wait(self, request: ReadRequest) -> None:
        lac = self.lac_now(request.ledger_id)
        over = lac > request.previous_lac or request.timeout_ms == 0
        if over or self._storage.of(request.ledger_id).is_fenced(request.ledger_id) or self._answers.closed:
            self._answer(request, lac)
            return
        poll = _LongPoll(self, request, lac)
        self._waiting[poll] = None
        self._watchers.watch(request.ledger_id, poll.look)

    def _forget(self, poll: _LongPoll) -> None:
        del self._waiting[poll]
        poll.timer.cancel()
        self._watchers.forget(poll.request.ledger_id, poll.look)

    def _answer(self, request: ReadRequest, lac: int, lac_time_ms: int | None = None) -> None:
        """With the LAC, when it woke the poll, and with the next entry when it is confirmed and held here."""
        if lac > request.previous_lac:
            found = self._storage.of(request.ledger_id).look_up(request.ledger_id, request.previous_lac + 1)
            if found.status is V2Status.OK:
                request = request._replace(entry_id=request.previous_lac + 1)
                if found.place is None:
                    self._answers.answer(request, V2Status.OK, found.body, lac, lac_time_ms)
                else:
                    self._answers.answer_loaded_later(request, found, lac, lac_time_ms)
                return
        self._answers.answer(request, V2Status.OK, None, lac, lac_time_ms)
