"""Locks as one process sees them: reads their queues, waits for turns, and lets what is over be trimmed.

    ready = await room.look(ask, ...)            # may it be had? nothing is written
    seqnum = await append(log, ready, part, …)   # the place in the queue, with the workflow's own part, in one record
    room.wait(id, key, name, seqnum, told)       # `told` when its turn has come; no record is written meanwhile

- What is free as of a snapshot is taken by an append that expects the lock's stream not to have moved since. Who waits joins the
  queue without a condition: then nobody fails because of others.
- A stream that is trimmed further than the newest checkpoint covers was empty there: what a checkpoint covers is trimmed after the
  checkpoint is in the log, so a read of the checkpoints after the gap was seen finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, NamedTuple

import boki
from boki_common.errors import BokiError, Conflict
from boki_common.logs import get_logger
from boki_common.runtime.ports import Clock
from bokiflow import lock_rules
from bokiflow.errors import LockRefused
from bokiflow.flush import size_of
from bokiflow.lock_rules import PICKER, Checkpoint, Enqueued, LockEvent, Queue
from bokiflow.lock_seats import TakeLock
from bokiflow.outcomes import Outcome, failed
from bokilib import tags
from bokilib.checkpoint_rules import CARRY_MS, PART_BYTES
from bokilib.contribution import Contribution, joined
from bokilib.follower import Follower
from bokilib.log import Log, Read
from bokilib.pauses import pauses
from bokilib.trimmer import Trimmer

RECORDS: Final = 64
"""Of one lock that is never free; then its queue is kept in a checkpoint."""
TOUCHED: Final = 10_000
"""Locks that may have something to trim; one more is found when it is used again."""
ROUNDS: Final = 64
"""At most so many rounds between two looks at a lock that somebody holds."""

log = get_logger(__name__)

Told = Callable[[Outcome | None], None]
"""None: it holds the lock; else it never will."""


class View(NamedTuple):
    """A lock as of a snapshot.

    Attributes:
        position: of the snapshot. newest: seqnum of the newest record of its stream that is there; 0: none is.
        records: above the checkpoint that was read, whose seqnum is `checkpoint` (0: none was).
        oldest_ms: when the oldest record was appended that the queue follows from.
    """

    queue: Queue
    position: int
    newest: int = 0
    records: int = 0
    checkpoint: int = 0
    oldest_ms: int = 0


class Ready(NamedTuple):
    """What is to be appended for who asked: its place, which it has at once if the lock is still as of `position`."""

    ask: TakeLock
    entry: Enqueued
    position: int
    at_once: bool


class _Found(NamedTuple):
    """One record, of a lock's stream or of its checkpoints."""

    seqnum: int
    time_ms: int
    events: list[LockEvent]


async def read(opened: Log, name: str) -> View:
    """A lock as it is now: no append that was acknowledged before is missed. Raises Lost."""
    while True:
        position = await opened.book.now(consistency="linearizable")
        found, trimmed = await _records(opened, name, position)
        covering = max(
            ((event.covers, one, event) for one in found for event in one.events if isinstance(event, Checkpoint)),
            key=lambda each: each[0],
            default=None,
        )
        covers = covering[0] if covering else 0
        if trimmed > covers:
            newest = await opened.book.read_prev(tags.lock_checkpoint(name), consistency="linearizable")
            if newest is not None and newest.seqnum > position:
                continue
            covering, covers = None, trimmed
        return _folded(position, found, covering and (covering[1], covering[2]), covers)


async def _records(opened: Log, name: str, position: int) -> tuple[list[_Found], int]:
    """Its records and checkpoints, and up to where it is trimmed."""
    stream = tags.lock(name)
    found: list[_Found] = []
    trimmed = 0
    async for item in opened.book.read(tags=[stream, tags.lock_checkpoint(name)], start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            if item.kind == boki.GapKind.LOST:
                raise item.error()
            if item.tag in (stream, None):
                trimmed = max(trimmed, item.last)
            continue
        events = PICKER.of(item.seqnum, await opened.open(item), about=name)
        if events:
            found.append(_Found(item.seqnum, item.time_ms, events))
    return found, trimmed


def _folded(position: int, found: list[_Found], base: tuple[_Found, Checkpoint] | None, covers: int) -> View:
    queue: Queue = base[1].queue if base else ()
    above = [one for one in found if one.seqnum > covers and not isinstance(one.events[0], Checkpoint)]
    for one in above:
        queue = lock_rules.after(queue, one.seqnum, one.events)
    of_stream = [one.seqnum for one in found if not isinstance(one.events[0], Checkpoint)]
    times = [base[0].time_ms] if base else [one.time_ms for one in above[:1]]
    return View(
        queue,
        position,
        max(of_stream, default=0),
        len(above),
        max((one.seqnum for one in found if isinstance(one.events[0], Checkpoint)), default=0),
        min(times, default=0),
    )


async def append(opened: Log, ready: Ready, part: Contribution, seen: int) -> int | None:
    """Takes a place, in one record with the workflow's part. Returns where; 0: the lock moved; None: somebody else runs the workflow.

    Raises:
        Errors of the log, when nobody can say what became of it.
    """
    stream = tags.lock(ready.ask.name)
    expect = {stream: ready.position} if ready.at_once else {}
    one = joined([part, Contribution((stream,), expect, (ready.entry,))])
    try:
        return await opened.append(one, seen=seen, settle=True)
    except Conflict as conflict:
        return None if opened.news(part.expect, conflict) else 0


class _Waiting(NamedTuple):
    number: int
    told: Told


class _Watched:
    """A lock that somebody here waits for, as far as it was read."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.queue: Queue = ()
        self.position = 0
        self.waiting: Final[dict[tuple[str, str], _Waiting]] = {}


class LockRoom:
    """See the module."""

    def __init__(self, opened: Log, clock: Clock) -> None:
        self._log: Final = opened
        self._clock: Final = clock
        self._follower: Final = Follower(opened)
        self._trimmer: Final = Trimmer(opened.book)
        self._watched: Final[dict[str, _Watched]] = {}
        self._names: Final[dict[str, dict[str, str]]] = {}
        """Of each workflow that waits: its calls, and for which lock."""
        self._touched: Final[dict[str, tuple[int, int]]] = {}
        """Of each: rounds until it is looked at, and how many it will be the next time."""
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    async def __aenter__(self) -> LockRoom:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watched.clear()
        await self._follower.__aexit__(kind, error, trace)

    # -- asking

    async def look(self, ask: TakeLock, owner: str, age: int) -> Ready | Outcome:
        """What is to be appended, or that it is refused; while the log cannot be read, it waits."""
        pause = pauses()
        while True:
            try:
                view = await read(self._log, ask.name)
                break
            except BokiError as error:
                if not error.retryable:
                    return failed(error)
            await asyncio.sleep(pause.next())
        entry = Enqueued(ask.name, owner, ask.key, ask.shared, age, ask.patient)
        if lock_rules.is_free(view.queue, ask.shared):
            return Ready(ask, entry, view.position, ask.try_ or not ask.again)
        if ask.try_ or not lock_rules.may_wait(view.queue, age, ask.patient):
            return failed(lock_rules.refusal(ask.name, view.queue, age, ask.patient))
        return Ready(ask, entry, view.position, False)

    # -- waiting

    def wait(self, id: str, key: str, name: str, number: int, told: Told) -> None:
        """Says when the place `number` has its turn, or lost it."""
        self._names.setdefault(id, {})[key] = name
        watched = self._watched.get(name)
        if watched is None:
            watched = self._watched[name] = _Watched(name)
            self._spawn(self._watch(watched))
        watched.waiting[id, key] = _Waiting(number, told)
        self._tell(watched)

    def unwait(self, id: str, key: str) -> None:
        """Nobody waits any more."""
        names = self._names.get(id)
        if names is None or key not in names:
            return
        watched = self._watched.get(names.pop(key))
        if not names:
            del self._names[id]
        if watched is not None:
            watched.waiting.pop((id, key), None)
            self._unwatch(watched)

    def unwait_all(self, id: str) -> None:
        """The workflow does not run here any more."""
        for key in list(self._names.get(id, ())):
            self.unwait(id, key)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="bokiflow lock")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, watched: _Watched) -> None:
        """Reads a lock, and follows it from there."""
        pause = pauses()
        while self._watched.get(watched.name) is watched:
            try:
                view = await read(self._log, watched.name)
            except BokiError as error:
                if not error.retryable:
                    self._broken(watched, error)
                    return
                await asyncio.sleep(pause.next())
                continue
            if self._watched.get(watched.name) is not watched:
                return
            watched.queue, watched.position = view.queue, view.position
            self._follower.add(tags.lock(watched.name), view.position + 1, lambda item: self._came(watched, item))
            self._tell(watched)
            return

    def _came(self, watched: _Watched, item: Read | boki.Gap | BokiError) -> None:
        if self._watched.get(watched.name) is not watched:
            return
        if isinstance(item, BokiError):
            self._broken(watched, item)
            return
        if not isinstance(item, Read):  # it is trimmed where it was not read yet: begin anew
            self._follower.discard(tags.lock(watched.name))
            self._spawn(self._watch(watched))
            return
        seqnum = item.record.seqnum
        try:
            events = PICKER.of(seqnum, item.envelope, about=watched.name)
        except BokiError as error:
            self._broken(watched, error)
            return
        watched.queue = lock_rules.after(watched.queue, seqnum, events)
        watched.position = seqnum
        self._tell(watched)

    def _tell(self, watched: _Watched) -> None:
        for pair, (number, told) in list(watched.waiting.items()):
            if watched.position < number:
                continue
            standing = lock_rules.standing(watched.queue, number)
            if standing == "waiting":
                continue
            self.unwait(*pair)
            told(None if standing == "held" else failed(self._refused(watched)))

    @staticmethod
    def _refused(watched: _Watched) -> BokiError:
        holder = watched.queue[0].owner if watched.queue else ""
        return LockRefused(
            f"lock {watched.name!r} was taken by an older workflow, {holder!r}, at the same time: release what you have and begin "
            "again",
            name=watched.name,
            holder=holder,
        )

    def _broken(self, watched: _Watched, error: BokiError) -> None:
        for pair, (_, told) in list(watched.waiting.items()):
            self.unwait(*pair)
            told(failed(error))

    def _unwatch(self, watched: _Watched) -> None:
        if not watched.waiting and self._watched.get(watched.name) is watched:
            del self._watched[watched.name]
            self._follower.discard(tags.lock(watched.name))

    # -- what is over

    def touched(self, name: str) -> None:
        """Something of a lock may be over soon."""
        if name in self._touched or len(self._touched) < TOUCHED:
            self._touched[name] = (0, 1)

    async def tidy(self) -> int:
        """One round: orders trims of locks that nobody holds, checkpoints of those that were never free; returns how many locks it read.

        Raises:
            Errors of the log.
        """
        looked = 0
        for name, (rounds, then) in list(self._touched.items()):
            if rounds:
                self._touched[name] = (rounds - 1, then)
                continue
            looked += 1
            view = await read(self._log, name)
            if view.queue:
                self._touched[name] = (then, min(ROUNDS, then * 2))
                await self._checkpoint(name, view)
            else:
                del self._touched[name]
                self._trim(name, view.newest, view.checkpoint)
        await self._trimmer.flush()
        return looked

    def _trim(self, name: str, last: int, last_checkpoint: int) -> None:
        """Up to these, both included."""
        marks = {tags.lock(name): last + 1} if last else {}
        if last_checkpoint:
            marks[tags.lock_checkpoint(name)] = last_checkpoint + 1
        if marks:
            self._trimmer.add_together(marks)

    async def _checkpoint(self, name: str, view: View) -> None:
        old = self._clock.now_ms() - view.oldest_ms >= CARRY_MS
        made = Checkpoint(name, view.position, view.queue)
        if (view.records < RECORDS and not old) or size_of(made) > PART_BYTES:
            return
        stream = tags.lock_checkpoint(name)
        try:
            seqnum = await self._log.append(Contribution((stream,), {stream: view.position}, (made,)), settle=True)
        except Conflict:
            return  # somebody else made one
        self._trim(name, view.position, seqnum - 1)
