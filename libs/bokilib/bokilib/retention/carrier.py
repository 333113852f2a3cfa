"""The carrier: rewrites old records that have no owner, so that old terms can be reclaimed (`rewritten_states`).

    async with Carrier(log, [store.carried(), tables.carried()], who="host-7"): ...

Any number of processes of a book may run one, each for the libraries that it uses. Every library has a fence of its own, at
`lib/carry/<library>`, so a process with few libraries does not keep others from rewriting the rest. A round claims the fences that are
free, reads the book once, from its beginning to the age at which records are rewritten, passes the records of these libraries to them,
and counts the records of libraries that this process does not have.

- A fence is free if its newest claim is unchanged after `every_s` of this process's clock. So a carrier that died is replaced without
  heartbeats. Two carriers at once do duplicate work and no harm: each append expects the fence and the checkpoint that it replaces.
- The record of a claim also tells the time: in a book without other appends, the log's clock advances by it.
- A subject that cannot be read keeps its own term and no other. The same holds for a library that fails.
- A claim as old as a term belongs to no running carrier. It is trimmed, so that a library without a carrier does not keep a term.
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
from bokilib.stacks import described, stack_of

EVERY_S: Final = 600.0
PENDING: Final = 1_024
"""Subjects that a library collects before it rewrites them."""
UNREADABLE: Final = "unreadable"
OTHERS: Final = "others"
PICKER: Final[Picker[Heartbeat | Claimed]] = Picker("lib", (Heartbeat, Claimed))
"""Heartbeats and claims. Old ones of members and carriers are trimmed here; claims of other fences belong to their holders."""

REWRITE_ROUNDS: Final = MetricDefinition(
    "boki_carry_rounds_total", COUNTER, "", "Rounds in which this process rewrote old records."
)
REWRITTEN_STATES: Final = MetricDefinition(
    "boki_carry_states_total",
    COUNTER,
    "",
    "States that this process rewrote, so that their old terms can be reclaimed.",
    ("library",),
)
REWRITE_UNREADABLE: Final = MetricDefinition(
    "boki_carry_unreadable_total",
    COUNTER,
    "",
    "Subjects that could not be read. They were not rewritten, and keep their terms.",
    ("library",),
)
REWRITE_LEFT: Final = MetricDefinition(
    "boki_carry_left_records",
    GAUGE,
    "",
    "Old records that the last round did not rewrite, since their library has owners or is not here.",
    ("library",),
)

log = get_logger(__name__)


class Carries(Protocol):
    """A library with old records to rewrite: objects and tables, for instance, which no running process owns."""

    @property
    def library(self) -> str:
        """The library's name, with which the kinds of its events begin."""

    def collect(self, read: Read) -> int:
        """Note the subjects of an old record.

        Returns:
            The number of subjects noted since the last `carry`.
        """

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """Rewrite the noted subjects that are due, and trim the records that this replaces.

        Args:
            now_ms: by the clock of the log.
            fence: the expectation of the carrier's claim, which every append must state.
            carry_ms: the age at which records are rewritten.

        Returns:
            The number of states appended, and of subjects that could not be read.

        Raises:
            Conflict: the fence was claimed by another process.
        """

    async def tend(self) -> None:
        """Do the library's other upkeep that is due once a round."""


class Round(NamedTuple):
    """The result of one round.

    Attributes:
        claims: seqnum of the claim of each library in the round.
        read: number of live records read that are old enough.
        carried: number of states that were rewritten.
        left: number of old records that were not rewritten, by library; without libraries of this process whose turn another carrier has.
    """

    claims: dict[str, int]
    read: int
    carried: int
    left: dict[str, int]


class _Turn:
    """A library's fence, and its newest claim as of the last look (`seen`); -1 if this process has to look again."""

    def __init__(self, library: Carries, fence: Fence) -> None:
        self.library: Final = library
        self.fence: Final = fence
        self.seen = -1


class Carrier:
    """A process that rewrites old records of libraries, in rounds. Its block runs rounds for the libraries whose fence is free.

    `round` runs one round at once for all its libraries, and takes their fences from other carriers.
    """

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
        """Create a carrier that does not run yet.

        Args:
            log: the log of the book.
            libraries: whose old records it rewrites.
            who: the carrier's name, for people.
            every_s: seconds from round to round.
            carry_ms: the age at which records are rewritten. Terms should not be shorter.
            metrics: the registry for `boki_carry_…`, by default a new one.

        Raises:
            InvalidArgument: there is no library.
        """
        if not libraries:
            raise InvalidArgument(
                "expected at least one library whose old records are rewritten, found none: pass store.carried(), …"
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
        self._rewritten = registry.counter(REWRITTEN_STATES)
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
                pass  # another carrier claimed all fences, and runs the round
            except BokiError as error:
                log.warning(
                    "carrier round failed: old records stay, the next round retries",
                    error=str(error),
                    retryable=error.retryable,
                )
            except Exception as error:  # noqa: BLE001 - no caller awaits this task: it is logged, and the carrier continues
                log.error(
                    "carrier round ended by a defect: old records stay, the next round retries",
                    error=described(error),
                    stack=stack_of(error),
                )
            await asyncio.sleep(self._every_s)

    async def _free(self) -> dict[str, Claim | None]:
        """Return the libraries whose fence was not claimed since the last look, with its newest claim."""
        free: dict[str, Claim | None] = {}
        for name, turn in self._turns.items():
            current = await turn.fence.current()
            found = current.seqnum if current is not None else 0
            if found in (turn.seen, 0):
                free[name] = current
            turn.seen = found
        return free

    async def round(self) -> Round:
        """Claim the fences of all libraries, whether free or not, and rewrite old records.

        Raises:
            Fenced: another carrier claimed all of them meanwhile, and runs the round.
            BokiError: a read or an append failed; the next round continues.
        """
        return await self._round({name: await turn.fence.current() for name, turn in self._turns.items()})

    async def _round(self, free: Mapping[str, Claim | None]) -> Round:
        turns, now_ms = await self._claim(free)
        done = await self._rewrite(turns, now_ms)
        self._rounds.inc()
        for library, count in done.left.items():
            self._left.labels(library).set(count)
        for turn in turns.values():
            await turn.library.tend()
        return done

    async def _claim(self, free: Mapping[str, Claim | None]) -> tuple[dict[str, _Turn], int]:
        """Claim the fences of libraries.

        Args:
            free: the newest claim of each library, which is to be replaced.

        Returns:
            The turns that this process claimed, at least one, and the log's time.

        Raises:
            Fenced: other carriers claimed all of them.
        """
        turns = {
            name: self._turns[name] for name in free
        }  # a process that loses the first fence still tries the others
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

    async def _rewrite(self, turns: dict[str, _Turn], now_ms: int) -> Round:
        """Read the old records and rewrite. Turns whose fence is lost on the way are removed from `turns`."""
        claims = {name: turn.seen for name, turn in turns.items()}
        left: Counter[str] = Counter()
        read = rewritten = 0
        async for item in self._log.book.read(start=1):
            if isinstance(item, boki.Gap):
                continue
            if now_ms - item.time_ms < self._carry_ms or item.seqnum >= min(claims.values()):
                break
            read += 1
            if await self._collect(turns, item, left) >= PENDING:
                rewritten += await self._flush(turns, now_ms)
        rewritten += await self._flush(turns, now_ms)
        await self._trimmer.flush()
        return Round(claims, read, rewritten, dict(left))

    async def _collect(self, turns: Mapping[str, _Turn], record: boki.Record, left: Counter[str]) -> int:
        """Pass a record to the libraries with events in it, and count it in `left` for those that are not here.

        Returns:
            The most subjects that one of the libraries has noted.
        """
        try:
            read = Read(record, await self._log.open(record))
            owners = libraries_of(record.seqnum, read.envelope)
            most = 0
            for owner in owners or [OTHERS]:
                if owner in turns:
                    most = max(most, turns[owner].library.collect(read))
                elif owner not in self._turns and not (owner == "lib" and self._is_expired(read)):
                    left[owner] += 1
            return most
        except BokiError as error:
            if error.retryable:
                raise
            left[UNREADABLE] += 1
            return 0

    def _is_expired(self, read: Read) -> bool:
        """Return whether an old record is a heartbeat or a carrier's claim: both belong to no running process, and are trimmed."""
        events = PICKER.of(read.record.seqnum, read.envelope)
        beats = [event for event in events if isinstance(event, Heartbeat)]
        for beat in beats:
            self._trimmer.add(tags.member(beat.group), read.record.seqnum + 1, forget=True)
        claimed = [tag for tag in read.record.tags if isinstance(tag, str) and tags.is_rewriter(tag)]
        for tag in claimed:
            self._trimmer.add(tag, read.record.seqnum + 1)
        return bool(beats or claimed)

    async def _flush(self, turns: dict[str, _Turn], now_ms: int) -> int:
        rewritten = 0
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
                log.warning(
                    "library not rewritten: its old records stay, and keep their terms", library=name, error=str(error)
                )
                states, unreadable = 0, 1
            self._rewritten.labels(name).inc(states)
            self._unreadable.labels(name).inc(unreadable)
            rewritten += states
        return rewritten


def _lose(turns: dict[str, _Turn], name: str, fenced: Fenced) -> None:
    """Remove a turn that another carrier claimed. Raise `fenced` if it was the last one."""
    turns.pop(name).seen = -1
    if not turns:
        raise fenced
