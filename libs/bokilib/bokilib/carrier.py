"""Who carries forward what has no owner, out of old terms, so that these can be deleted (`carry_rules`).

    async with Carrier(log, [store.carried()], who="host-7"): ...

Any number of processes of a book may do so; one at a time does. A round begins with a claim of `lib/carry`; then the book is read
from its beginning up to a day ago, what libraries carry is handed to them, and what has owners of its own is counted.

- Whose turn it is, is judged by observed silence: a claim that is still the newest after a whole `every_s` of one's own clock. So a
  carrier that died is replaced, without heartbeats. Two that carry at once do no harm but work: what is appended expects both the
  fence and the checkpoint that it replaces.
- The claim is also the clock: in a book in which nobody writes, its time is what says that days go by.
- One subject that cannot be read keeps its term, and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol

import boki
from boki_common.errors import BokiError, Conflict
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from bokilib import metric_definitions as definitions
from bokilib import tags
from bokilib.checkpoint_rules import CARRY_MS
from bokilib.conflict_rules import Claim, Expected
from bokilib.errors import Fenced
from bokilib.events import Picker, libraries_of
from bokilib.fence import Claimed, Fence
from bokilib.log import Log, Read
from bokilib.members import Heartbeat
from bokilib.trimmer import Trimmer

EVERY_S: Final = 600.0
PENDING: Final = 1_024
"""Subjects that are collected before they are carried."""
UNREADABLE: Final = "unreadable"
OTHERS: Final = "others"
PICKER: Final[Picker[Heartbeat | Claimed]] = Picker("lib", (Heartbeat, Claimed))
"""All that is of nobody but this: claims of fences are their holders', and counted."""

log = get_logger(__name__)


class Carries(Protocol):
    """A library, some of whose records have no owner."""

    @property
    def library(self) -> str:
        """What its events begin with."""

    def collect(self, read: Read) -> int:
        """Notes what an old record is about; returns how many subjects are noted."""

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """Carries what was noted, and lets go what may go.

        Returns:
            How many states it appended, and how many subjects it could not read.

        Raises:
            Conflict: the fence moved.
        """

    async def tend(self) -> None:
        """What else is due once a round."""


class Round(NamedTuple):
    """What one round came to.

    Attributes:
        claim: its place. read: old records that are live. carried: states that were appended anew.
        left: old records that are left where they are, by whose they are.
    """

    claim: int
    read: int
    carried: int
    left: dict[str, int]


class Carrier:
    """See the module. Entered, it takes its turns until it is left; `round` is one turn, whoever's it is."""

    def __init__(
        self,
        log: Log,
        libraries: Sequence[Carries],
        *,
        who: str,
        every_s: float = EVERY_S,
        carry_ms: int = CARRY_MS,
        metrics: Metrics | None = None,
    ) -> None:
        """
        Args:
            who: carries, for people. every_s: seconds from round to round.
            carry_ms: what is older is carried; a term should not be shorter.
        """
        self._log = log
        self._libraries = {one.library: one for one in libraries}
        self._fence = Fence(log, tags.CARRY, "the carrier", who=who)
        self._trimmer = Trimmer(log.book)
        self._every_s = every_s
        self._carry_ms = carry_ms
        shown = metrics or Metrics()
        self._rounds = shown.counter(definitions.CARRY_ROUNDS)
        self._carried = shown.counter(definitions.CARRIED)
        self._unreadable = shown.counter(definitions.CARRY_UNREADABLE)
        self._left = shown.gauge(definitions.CARRY_LEFT)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Carrier:
        self._task = asyncio.create_task(self._take_turns(), name="bokilib carrier")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _take_turns(self) -> None:
        seen = -1
        while True:
            try:
                current = await self._fence.current()
                found = current.seqnum if current is not None else 0
                if found in (seen, 0):
                    found = (await self.round(current)).claim
                seen = found
            except Fenced:
                seen = -1
            except BokiError as error:
                log.warning("a round of carrying failed", error=str(error), retryable=error.retryable)
            await asyncio.sleep(self._every_s)

    async def round(self, last: Claim | None = None) -> Round:
        """Claims it (over `last`, or whoever holds it), and carries what is old.

        Raises:
            Fenced: somebody else began meanwhile, and goes on with it. Errors of reads and appends: the next round goes on.
        """
        claim = await self._fence.take(last if last is not None else await self._fence.current())
        await self._log.book.trim([(tags.CARRY, claim)])
        newest = await self._log.book.read_prev(tags.CARRY)
        if newest is None or newest.seqnum != claim:
            raise self._fence.over()
        try:
            done = await self._carry_all(claim, newest.time_ms)
        except Conflict as conflict:
            raise self._fence.over() from conflict
        self._rounds.inc()
        for library, count in done.left.items():
            self._left.labels(library).set(count)
        for one in self._libraries.values():
            await one.tend()
        return done

    async def _carry_all(self, claim: int, now_ms: int) -> Round:
        left: Counter[str] = Counter()
        read = carried = 0
        async for item in self._log.book.read(start=1):
            if isinstance(item, boki.Gap):
                continue
            if now_ms - item.time_ms < self._carry_ms or item.seqnum >= claim:
                break
            read += 1
            if await self._collect(item, left) >= PENDING:
                carried += await self._flush(now_ms)
        carried += await self._flush(now_ms)
        await self._trimmer.flush()
        return Round(claim, read, carried, dict(left))

    async def _collect(self, record: boki.Record, left: Counter[str]) -> int:
        """Hands a record to those whose it is; returns the most that any of them has noted."""
        try:
            read = Read(record, await self._log.open(record))
            owners = libraries_of(record.seqnum, read.envelope)
        except BokiError as error:
            if error.retryable:
                raise
            left[UNREADABLE] += 1
            return 0
        most = 0
        for owner in owners or [OTHERS]:
            library = self._libraries.get(owner)
            if library is not None:
                most = max(most, library.collect(read))
            elif owner == "lib" and self._is_heartbeat(read):
                pass
            else:
                left[owner] += 1
        return most

    def _is_heartbeat(self, read: Read) -> bool:
        """A heartbeat so old is of nobody who is alive."""
        events = PICKER.of(read.record.seqnum, read.envelope)
        beats = [event for event in events if isinstance(event, Heartbeat)]
        for beat in beats:
            self._trimmer.add(tags.member(beat.group), read.record.seqnum + 1, forget=True)
        return bool(beats)

    async def _flush(self, now_ms: int) -> int:
        carried = 0
        for name, library in self._libraries.items():
            states, unreadable = await library.carry(now_ms, self._fence.expect, carry_ms=self._carry_ms)
            self._carried.labels(name).inc(states)
            self._unreadable.labels(name).inc(unreadable)
            carried += states
        return carried
