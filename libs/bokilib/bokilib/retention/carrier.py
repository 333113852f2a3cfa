"""Carries forward what has no owner, out of old terms, so that these can be deleted (`rewritten_states`).

    async with Carrier(log, [store.carried(), tables.carried()], who="host-7"): ...

Any number of processes of a book may do so, each for the libraries that it has. Each library has a turn of its own, `lib/carry/<library>`:
so who carries few of them keeps nobody from carrying the others. A round begins with claims of the turns that are free; then the book
is read once, from its beginning up to a day ago, what these libraries carry is handed to them, and what is of libraries that are not
here is counted.

- Whose turn it is, is judged by observed silence: a claim that is still the newest after a whole `every_s` of one's own clock. So a
  carrier that died is replaced, without heartbeats. Two that carry at once do no harm but work: what is appended expects both the
  fence and the checkpoint that it replaces.
- A claim is also the clock: in a book in which nobody writes, its time is what says that days go by.
- One subject that cannot be read keeps its term, and nobody else's; so does a library that fails.
- A claim that is as old as a term is of nobody who carries: it is trimmed, so that a library that is carried no more keeps no term by it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol

import boki
from boki_common.errors import BokiError, Conflict, InvalidArgument
from boki_common.logs import get_logger
from boki_common.metrics import COUNTER, GAUGE, MetricDefinition, Metrics
from bokilib.append.fence import Claimed, Fence
from bokilib.append.log import Log, Read
from bokilib.errors import Fenced
from bokilib.follow.members import Heartbeat
from bokilib.records import tags
from bokilib.records.conflict_rules import Claim, Expected
from bokilib.records.events import Picker, libraries_of
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokilib.retention.trimmer import Trimmer

EVERY_S: Final = 600.0
PENDING: Final = 1_024
"""Subjects that are collected before they are carried."""
UNREADABLE: Final = "unreadable"
OTHERS: Final = "others"
PICKER: Final[Picker[Heartbeat | Claimed]] = Picker("lib", (Heartbeat, Claimed))
"""All that is of nobody but this: claims of fences are their holders', and counted."""

REWRITE_ROUNDS: Final = MetricDefinition(
    "boki_carry_rounds_total", COUNTER, "", "Rounds in which this process carried forward what has no owner."
)
REWRITTEN_STATES: Final = MetricDefinition(
    "boki_carry_states_total",
    COUNTER,
    "",
    "States that it appended anew, so that the terms they were in may go.",
    ("library",),
)
REWRITE_UNREADABLE: Final = MetricDefinition(
    "boki_carry_unreadable_total",
    COUNTER,
    "",
    "What it could not read, and left where it is: it keeps its term.",
    ("library",),
)
REWRITE_LEFT: Final = MetricDefinition(
    "boki_carry_left_records",
    GAUGE,
    "",
    "Records older than a term that the last round left to their owners, by library.",
    ("library",),
)

log = get_logger(__name__)


class Carries(Protocol):
    """A library, some of whose records have no owner."""

    @property
    def library(self) -> str:
        """What its events begin with."""

    def collect(self, read: Read) -> int:
        """Notes what an old record is about; returns how many subjects are noted."""

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """Carries what was noted, and trims what may go.

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
        claims: of which libraries, and their places. read: old records that are live. carried: states that were appended anew.
        left: old records that are left where they are, by whose they are; not those whose library is here, and carried by others.
    """

    claims: dict[str, int]
    read: int
    carried: int
    left: dict[str, int]


class _Turn:
    """Of one library. `seen`: the newest claim of it when this process looked last; -1: it has to look again."""

    def __init__(self, library: Carries, fence: Fence) -> None:
        self.library: Final = library
        self.fence: Final = fence
        self.seen = -1


class Carrier:
    """See the module. Entered, it takes its turns until it is left; `round` is one of all its libraries, whoever's turn it is."""

    def __init__(
        self,
        log: Log,
        libraries: Sequence[Carries],
        *,
        who: str,
        every_s: float = EVERY_S,
        carry_ms: int = REWRITE_MS,
        metrics: Metrics | None = None,
    ) -> None:
        """
        Args:
            who: carries, for people. every_s: seconds from round to round.
            carry_ms: what is older is carried; a term should not be shorter.

        Raises:
            InvalidArgument: there is nothing to carry.
        """
        if not libraries:
            raise InvalidArgument(
                "expected one library at least whose records are carried, found none: store.carried(), …"
            )
        self._log = log
        self._turns = {
            one.library: _Turn(one, Fence(log, tags.rewriter(one.library), f"the carrier of {one.library}", who=who))
            for one in libraries
        }
        self._trimmer = Trimmer(log.book)
        self._every_s = every_s
        self._carry_ms = carry_ms
        registry = metrics or Metrics()
        self._rounds = registry.counter(REWRITE_ROUNDS)
        self._carried = registry.counter(REWRITTEN_STATES)
        self._unreadable = registry.counter(REWRITE_UNREADABLE)
        self._left = registry.gauge(REWRITE_LEFT)
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
        while True:
            try:
                free = await self._free()
                if free:
                    await self._round(free)
            except Fenced:
                pass  # somebody else goes on with it
            except BokiError as error:
                log.warning("a round of carrying failed", error=str(error), retryable=error.retryable)
            await asyncio.sleep(self._every_s)

    async def _free(self) -> dict[str, Claim | None]:
        """Libraries whose turn nobody took since this process looked last, and who had it."""
        free: dict[str, Claim | None] = {}
        for name, turn in self._turns.items():
            current = await turn.fence.current()
            found = current.seqnum if current is not None else 0
            if found in (turn.seen, 0):
                free[name] = current
            turn.seen = found
        return free

    async def round(self) -> Round:
        """Claims the turns of all libraries, over whoever holds them, and carries what is old.

        Raises:
            Fenced: somebody else began meanwhile, with all of them, and goes on. Errors of reads and appends: the next round goes on.
        """
        return await self._round({name: await turn.fence.current() for name, turn in self._turns.items()})

    async def _round(self, free: Mapping[str, Claim | None]) -> Round:
        turns, now_ms = await self._claim(free)
        done = await self._carry_all(turns, now_ms)
        self._rounds.inc()
        for library, count in done.left.items():
            self._left.labels(library).set(count)
        for turn in turns.values():
            await turn.library.tend()
        return done

    async def _claim(self, free: Mapping[str, Claim | None]) -> tuple[dict[str, _Turn], int]:
        """The turns that this process has now, one at least, and what time it is by the log. Raises Fenced."""
        turns = {name: self._turns[name] for name in free}  # all of them: who loses the first still tries the others
        for name, last in free.items():
            try:
                turns[name].seen = await turns[name].fence.take(last)
            except Fenced as fenced:
                _lose(turns, name, fenced)
        await self._log.book.trim([(turn.fence.tag, turn.seen) for turn in turns.values()])
        newest = await self._log.book.read_prev_many([(turn.fence.tag, None) for turn in turns.values()])
        now_ms = 0
        for (name, turn), record in zip(list(turns.items()), newest, strict=True):
            if record is None or record.seqnum != turn.seen:
                _lose(turns, name, turn.fence.over())
            else:
                now_ms = max(now_ms, record.time_ms)
        return turns, now_ms

    async def _carry_all(self, turns: dict[str, _Turn], now_ms: int) -> Round:
        """`turns`: those that are lost leave it."""
        claims = {name: turn.seen for name, turn in turns.items()}
        left: Counter[str] = Counter()
        read = carried = 0
        async for item in self._log.book.read(start=1):
            if isinstance(item, boki.Gap):
                continue
            if now_ms - item.time_ms < self._carry_ms or item.seqnum >= min(claims.values()):
                break
            read += 1
            if await self._collect(turns, item, left) >= PENDING:
                carried += await self._flush(turns, now_ms)
        carried += await self._flush(turns, now_ms)
        await self._trimmer.flush()
        return Round(claims, read, carried, dict(left))

    async def _collect(self, turns: Mapping[str, _Turn], record: boki.Record, left: Counter[str]) -> int:
        """Hands a record to those whose it is; returns the most that any of them has noted."""
        try:
            read = Read(record, await self._log.open(record))
            owners = libraries_of(record.seqnum, read.envelope)
            most = 0
            for owner in owners or [OTHERS]:
                if owner in turns:
                    most = max(most, turns[owner].library.collect(read))
                elif owner not in self._turns and not (owner == "lib" and self._is_over(read)):
                    left[owner] += 1
            return most
        except BokiError as error:
            if error.retryable:
                raise
            left[UNREADABLE] += 1
            return 0

    def _is_over(self, read: Read) -> bool:
        """A heartbeat so old is of nobody who is alive, and a carrier's claim of nobody who carries."""
        events = PICKER.of(read.record.seqnum, read.envelope)
        beats = [event for event in events if isinstance(event, Heartbeat)]
        for beat in beats:
            self._trimmer.add(tags.member(beat.group), read.record.seqnum + 1, forget=True)
        claimed = [tag for tag in read.record.tags if isinstance(tag, str) and tags.is_rewriter(tag)]
        for tag in claimed:
            self._trimmer.add(tag, read.record.seqnum + 1)
        return bool(beats or claimed)

    async def _flush(self, turns: dict[str, _Turn], now_ms: int) -> int:
        carried = 0
        for name, turn in list(turns.items()):
            try:
                states, unreadable = await turn.library.carry(now_ms, turn.fence.expect, carry_ms=self._carry_ms)
            except Conflict as conflict:
                fenced = turn.fence.over()
                fenced.__cause__ = conflict
                _lose(turns, name, fenced)
                continue
            except BokiError as error:
                if error.retryable:
                    raise
                log.warning("a library is not carried", library=name, error=str(error))
                states, unreadable = 0, 1
            self._carried.labels(name).inc(states)
            self._unreadable.labels(name).inc(unreadable)
            carried += states
        return carried


def _lose(turns: dict[str, _Turn], name: str, fenced: Fenced) -> None:
    """Somebody else has this turn. Raises `fenced`, if that was the last one."""
    turns.pop(name).seen = -1
    if not turns:
        raise fenced
