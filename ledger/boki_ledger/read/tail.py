"""Following a ledger that is being written: entries as soon as they are acknowledged, until it is closed.

Bookies of the last fragment are asked by long polls, one each: they answer when they learn of a higher LAC, and bring the
next entry along. That answer is a wake-up only: nothing protects the LAC in it, so the LAC is read again from bodies that
carry a digest, and the entry is taken if that covers it.

- A bookie that refuses, is down, or answers at once without news (as all do once a ledger is fenced) rests, with growing
  pauses. While all of them rest the LAC is read from a quorum after each pause: without long polls it is plain polling.
- The ensemble is the metadata's, which the reader follows: changes, recovery by another and the close are noticed there.
- At most one poll waits at a bookie, so a slow one is not asked more than it answers.
- A bookie is polled for a LAC above its last answer, not above what the follower knows: Apache's bookies forget a poll
  when their LAC moves and is still not above what the poll named, so one that lags would not answer until the poll's time ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, Protocol

from boki_common.backoff import Backoff
from boki_common.bookkeeper.digests import Digest
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import DigestMismatch, EntryUnknown
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.read.lac_reads import LacReads
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieTransport, PollAnswer

ENTRIES_AT_ONCE: Final = 128
"""Entries that are read together when the follower is behind."""
NO_LAC: Final = -1

_log = get_logger("ledger")


class Followed(Protocol):
    """What is asked of the reader."""

    @property
    def ledger_id(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def last_entry(self) -> int: ...
    @property
    def metadata(self) -> LedgerMetadata: ...

    def confirm(self, entry_id: int) -> None: ...
    async def read(self, first: int, last: int) -> list[memoryview]: ...
    async def read_lac(self) -> int: ...

    def changed(self) -> asyncio.Future[None]:
        """Ends when the metadata changed or the reader was closed. Raises what ended the reader before."""


class _Poll(NamedTuple):
    bookie: BookieId
    previous_lac: int
    asked_at: float


class Tail:
    """See the module. One for each `entries`."""

    def __init__(
        self,
        reader: Followed,
        digest: Digest,
        lacs: LacReads,
        transport: BookieTransport,
        settings: LedgerSettings,
        *,
        wait_s: float,
    ) -> None:
        self._reader = reader
        self._digest = digest
        self._lacs = lacs
        self._transport = transport
        self._settings = settings
        self._wait_s = wait_s
        self._loop = asyncio.get_running_loop()
        self._polls: dict[asyncio.Future[PollAnswer], _Poll] = {}
        self._known_lacs: dict[BookieId, int] = {}
        """The highest LAC that each answered to a long poll; used for nothing but the next poll."""
        self._resting: dict[BookieId, float] = {}
        self._backoffs: dict[BookieId, Backoff] = {}

    async def entries(self, start: int) -> AsyncIterator[tuple[int, memoryview]]:
        """(entry id, payload) from `start` on, in order; ends after the last entry of a closed ledger."""
        reader, entry_id = self._reader, start
        try:
            while True:
                changed = reader.changed()
                if entry_id <= reader.last_entry:
                    last = min(reader.last_entry, entry_id + ENTRIES_AT_ONCE - 1)
                    for payload in await reader.read(entry_id, last):
                        yield entry_id, payload
                        entry_id += 1
                elif reader.closed:
                    return
                elif (brought := await self._wait(entry_id, changed)) is not None:
                    yield entry_id, brought
                    entry_id += 1
        finally:
            for future in self._polls:
                future.cancel()

    async def _wait(self, entry_id: int, changed: asyncio.Future[None]) -> memoryview | None:
        """Returns when there may be news; with the payload of `entry_id` if a bookie brought it."""
        self._poll(entry_id)
        until = min(self._resting.values(), default=None)
        left = None if until is None else max(0.0, until - self._loop.time())
        awaited: list[asyncio.Future[Any]] = [*self._polls, changed]
        done, _ = await asyncio.wait(awaited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not self._polls and not done:
            try:
                await self._reader.read_lac()
            except EntryUnknown as error:
                _log.info(
                    "nobody tells the LAC of a ledger that is followed", ledger_id=self._reader.ledger_id, error=error
                )
        brought = None
        for future in [one for one in self._polls if one.done()]:
            poll = self._polls.pop(future)
            brought = await self._answered(poll, future.result(), entry_id) or brought
        return brought

    def _poll(self, entry_id: int) -> None:
        """Asks every bookie of the last fragment that is not asked and does not rest; forgets the others."""
        _, bookies = self._reader.metadata.ensembles[-1]
        now = self._loop.time()
        for future in [one for one, poll in self._polls.items() if poll.bookie not in bookies]:
            del self._polls[future]
            future.cancel()
        self._resting = {one: until for one, until in self._resting.items() if one in bookies and until > now}
        asked = {poll.bookie for poll in self._polls.values()}
        for bookie in bookies:
            if bookie not in asked and bookie not in self._resting:
                previous_lac = min(self._known_lacs.get(bookie, NO_LAC), entry_id - 1)
                future = self._transport.wait_for_lac(bookie, self._reader.ledger_id, previous_lac, wait_s=self._wait_s)
                self._polls[future] = _Poll(bookie, previous_lac, now)

    async def _answered(self, poll: _Poll, answer: PollAnswer, entry_id: int) -> memoryview | None:
        reader = self._reader
        if answer.status is V2Status.OK and answer.lac is not None and answer.lac > poll.previous_lac:
            self._known_lacs[poll.bookie] = max(answer.lac, self._known_lacs.get(poll.bookie, NO_LAC))
            if reader.last_entry < min(entry_id, answer.lac):
                _, lac = self._lacs.take(await self._transport.read_lac(poll.bookie, reader.ledger_id))
                reader.confirm(lac)
            if reader.last_entry > poll.previous_lac:
                self._backoffs.pop(poll.bookie, None)
                return self._brought(poll, answer, entry_id)
        elif answer.status is V2Status.OK and self._loop.time() - poll.asked_at >= self._wait_s / 2:
            return None  # its time was over: it may be asked again at once
        backoff = self._backoffs.setdefault(poll.bookie, self._settings.backoff())
        self._resting[poll.bookie] = self._loop.time() + backoff.next()
        return None

    def _brought(self, poll: _Poll, answer: PollAnswer, entry_id: int) -> memoryview | None:
        """The payload that came along, if it is the one that is wanted, confirmed and undamaged."""
        if answer.body is None or poll.previous_lac + 1 != entry_id or self._reader.last_entry < entry_id:
            return None
        try:
            return verify_body(answer.body, self._reader.ledger_id, entry_id, self._digest)[1]
        except DigestMismatch as error:
            _log.warning("damaged copy met in a long poll", ledger_id=self._reader.ledger_id, error=error)
            return None
