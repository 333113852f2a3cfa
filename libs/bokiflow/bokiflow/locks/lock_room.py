"""The locks of one process: entries in lock queues, waiting for their turns, and retention.

    ready = await room.look(ask, ...)            # reads the queue: is the lock free, may the workflow wait? appends nothing
    seqnum = await append(log, ready, part, …)   # the lock queue entry and the workflow's own events, in one record
    room.wait(id, key, name, seqnum, on_turn)    # calls on_turn when the turn of the entry has come; appends nothing

- A lock that is free as of a snapshot is acquired by an append that expects no record in the lock's stream since. An entry that waits is
  appended without this condition, so it does not fail when other workflows append.
- Records of free locks are trimmed soon, so that a lock is quick to read. The queue of a lock that is held for days is rewritten as a
  checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

import boki
from boki_common.errors import BokiError, Conflict
from boki_common.logs import get_logger
from bokiflow.locks import lock_reading
from bokiflow.locks.lock_reading import AT_ONCE
from bokiflow.model import lock_rules
from bokiflow.model.lock_rules import PICKER, Checkpoint, Enqueued, LockTrim, LockView, Queue
from bokiflow.model.outcomes import Outcome, failed
from bokiflow.runtime.commands import TakeLock
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.pauses import pauses, retried
from bokilib.records import tags
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution, joined
from bokilib.retention.rewritten_states import State, append_states
from bokilib.retention.trimmer import Trimmer

TOUCHED: Final = 10_000
"""Locks noted for the next cleanup rounds, at most; a further lock is noted when it is used again."""
ROUNDS: Final = 64
"""Cleanup rounds between two reads of a held lock, at most."""
CARRY_EVERY_MS: Final = 600_000
"""Milliseconds between two reads of the old part of the book."""

log = get_logger(__name__)

OnTurn = Callable[[Outcome | None], None]
"""Called with None when the workflow holds the lock, or with the error that it never will."""


class Ready(NamedTuple):
    """A lock queue entry to append.

    Attributes:
        ask: the command of the workflow.
        entry: the entry.
        position: the position that the queue was read at.
        at_once: the append expects that the lock is still free, as of `position`.
    """

    ask: TakeLock
    entry: Enqueued
    position: int
    at_once: bool


def entry_of(ask: TakeLock, owner: str, age: int) -> Enqueued:
    """Return the lock queue entry for a command."""
    return Enqueued(ask.name, owner, ask.key, ask.shared, age, ask.waits_for_any)


async def append(opened: Log, ready: Ready, part: Contribution, seen: int) -> int | None:
    """Append a lock queue entry, in one record with events of the workflow.

    Args:
        opened: the log of the book.
        ready: the entry.
        part: the events of the workflow, with their expectations.
        seen: the position of the log that the caller has seen.

    Returns:
        The seqnum of the record; 0 if the lock's queue changed; None if another worker runs the workflow.

    Raises:
        BokiError: an error of the log; the entry may or may not be in the log if the error is not definite.
    """
    stream = tags.lock(ready.ask.name)
    expect = {stream: ready.position} if ready.at_once else {}
    one = joined([part, Contribution((stream,), expect, (ready.entry,))])
    try:
        return await opened.append(one, seen=seen, settle=True)
    except Conflict as conflict:
        return None if opened.moved(part.expect, conflict) else 0


class _WaitingEntry(NamedTuple):
    number: int
    on_turn: OnTurn


class _Watched:
    """A lock that workflows of this process wait for, and its queue as of a position."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.queue: Queue = ()
        self.position = 0
        self.waiting: Final[dict[tuple[str, str], _WaitingEntry]] = {}


class LockRoom:
    """The locks that workflows of one process wait for, and those to clean up."""

    def __init__(self, opened: Log, failed: Callable[[Exception], None]) -> None:
        """Follow no lock yet.

        Args:
            opened: the log of the book.
            failed: called with the error after which locks are not followed any more (`Follower`): other processes have to run the
                workflows that wait.
        """
        self._log: Final = opened
        self._follower: Final = Follower(opened, failed)
        self._trimmer: Final = Trimmer(opened.book)
        self._watched: Final[dict[str, _Watched]] = {}
        self._names: Final[dict[str, dict[str, str]]] = {}
        """The locks that each workflow waits for, by the key of the call."""
        self._touched: Final[dict[str, tuple[int, int]]] = {}
        """Locks to clean up: rounds until the next read, and rounds until the one after."""
        self._carry_at_ms = 0
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    async def __aenter__(self) -> LockRoom:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._watched.clear()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            await self._follower.__aexit__(kind, error, trace)

    # -- acquiring

    async def look(self, ask: TakeLock, owner: str, age: int) -> Ready | Outcome:
        """Read the queue of a lock, and decide whether a workflow may have or await it; retry while the log cannot be read.

        Args:
            ask: the command of the workflow.
            owner: the workflow.
            age: the seqnum of the workflow's start.

        Returns:
            The entry to append, or the error that refuses it.
        """
        try:
            view = await retried(lambda: lock_reading.read(self._log, ask.name))
        except BokiError as error:
            return failed(error)
        entry = entry_of(ask, owner, age)
        if lock_rules.is_free(view.queue, ask.shared):
            return Ready(ask, entry, view.position, ask.try_ or not ask.again)
        if ask.try_ or not lock_rules.may_wait(view.queue, age, ask.waits_for_any):
            return failed(lock_rules.refusal(ask.name, view.queue, age, ask.waits_for_any))
        return Ready(ask, entry, view.position, False)

    # -- waiting

    def wait(self, id: str, key: str, name: str, number: int, on_turn: OnTurn) -> None:
        """Have `on_turn` called when the entry of a workflow has its turn, or can no longer have it.

        Args:
            id: the workflow.
            key: the key of its call.
            name: the lock.
            number: the seqnum of the entry.
            on_turn: see `OnTurn`.
        """
        self._names.setdefault(id, {})[key] = name
        watched = self._watched.get(name)
        if watched is None:
            watched = self._watched[name] = _Watched(name)
            self._spawn(self._watch(watched))
        watched.waiting[id, key] = _WaitingEntry(number, on_turn)
        self._notify(watched)

    def unwait(self, id: str, key: str) -> None:
        """Stop waiting for the lock of a call."""
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
        """Stop waiting for the locks of a workflow that does not run here any more."""
        for key in list(self._names.get(id, ())):
            self.unwait(id, key)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="bokiflow lock")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, watched: _Watched) -> None:
        """Read a lock, and follow its stream from there."""
        pause = pauses()
        while self._watched.get(watched.name) is watched:
            try:
                view = await lock_reading.read(self._log, watched.name)
            except BokiError as error:
                if not error.retryable:
                    self._broken(watched, error)
                    return
                await asyncio.sleep(pause.next())
                continue
            if self._watched.get(watched.name) is not watched:
                return
            watched.queue, watched.position = view.queue, view.position
            self._follower.add(tags.lock(watched.name), view.position + 1, lambda item: self._receive(watched, item))
            self._notify(watched)
            return

    def _receive(self, watched: _Watched, item: Read | boki.Gap | BokiError) -> None:
        if self._watched.get(watched.name) is not watched:
            return
        if isinstance(item, BokiError):
            self._broken(watched, item)
            return
        if not isinstance(item, Read):  # records that were not read yet are trimmed: read the lock again
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
        self._notify(watched)

    def _notify(self, watched: _Watched) -> None:
        for pair, (number, on_turn) in list(watched.waiting.items()):
            if watched.position < number:
                continue
            standing = lock_rules.standing(watched.queue, number)
            if standing == "waiting":
                continue
            self.unwait(*pair)
            on_turn(None if standing == "held" else failed(lock_rules.passed_over(watched.name, watched.queue)))

    def _broken(self, watched: _Watched, error: BokiError) -> None:
        for pair, (_, on_turn) in list(watched.waiting.items()):
            self.unwait(*pair)
            on_turn(failed(error))

    def _unwatch(self, watched: _Watched) -> None:
        if not watched.waiting and self._watched.get(watched.name) is watched:
            del self._watched[watched.name]
            self._follower.discard(tags.lock(watched.name))

    # -- retention

    def touched(self, name: str) -> None:
        """Note a lock for the next cleanup round."""
        if name in self._touched or len(self._touched) < TOUCHED:
            self._touched[name] = (0, 1)

    async def tidy(self) -> int:
        """Run one cleanup round: trim the records of free locks, and checkpoint long queues; return the number of locks that were read.

        Raises:
            BokiError: an error of the log; the lock is cleaned up in a later round.
        """
        looked = 0
        for name, (rounds, then) in list(self._touched.items()):
            if rounds:
                self._touched[name] = (rounds - 1, then)
                continue
            looked += 1
            self._touched.pop(name, None)  # before the read: the lock may be noted again while it is read
            try:
                view = await lock_reading.read(self._log, name)
            except BokiError:
                self._touched.setdefault(name, (0, then))
                raise
            if view.queue:
                self._touched.setdefault(name, (then, min(ROUNDS, then * 2)))
                await self._checkpoint(name, view)
            else:
                trim_to(self._trimmer, name, lock_rules.trim_marks(view))
        await self._trimmer.flush()
        return looked

    async def _checkpoint(self, name: str, view: LockView) -> None:
        made = Checkpoint(name, view.position, view.queue)
        if not lock_rules.is_long(view):
            return
        stream = tags.lock_checkpoint(name)
        try:
            seqnum = await self._log.append(Contribution((stream,), {stream: view.position}, (made,)), settle=True)
        except Conflict:
            return  # another process has appended one
        trim_to(self._trimmer, name, lock_rules.trim_marks_under(view, seqnum))

    async def carry(self, now_ms: int, fence: Expected, carry_ms: int) -> int:
        """Rewrite the locks of the book that have records as old as a term, every `CARRY_EVERY_MS`; return how many there were.

        Args:
            now_ms: the time by the clock of the log.
            fence: the expectation that the caller still owns its partition.
            carry_ms: the age of old records.

        Raises:
            Conflict: the fence moved.
            BokiError: another error of the log.
        """
        if now_ms < self._carry_at_ms:
            return 0
        count = await carry_old(self._log, fence, now_ms, carry_ms)
        self._carry_at_ms = now_ms + min(CARRY_EVERY_MS, carry_ms)
        return count


class LockCarried:
    """Retention of the locks of a book; implements `bokilib.retention.carrier.Carries`.

    The queues of held locks are rewritten out of old terms as checkpoints, and the streams of free locks are trimmed:

        async with Carrier(log, [LockCarried(log), store.carried()], who="host-7"): ...

    Workers do it, too (`LockRoom.carry`): the owner of the first partition of a group reads the old part of the book from time to time,
    under that partition's fence. So no process has to remember a lock: the workflow that holds it may be blocked or sleep for a year, and a
    process may die right after it released the lock.

    - The append of a checkpoint expects the fence, and that the lock has no newer checkpoint. Two processes at once only do the work twice.
    - A record has the checkpoints of many locks. If some of them have changed, the others are appended without them.
    - Old records are trimmed after the checkpoint is in the log. If a process dies in between, the next round finds and trims them.
    """

    def __init__(self, opened: Log) -> None:
        self._log: Final = opened
        self._trimmer: Final = Trimmer(opened.book)
        self._names: dict[str, None] = {}

    @property
    def library(self) -> str:
        return "lock"

    def collect(self, read: Read) -> int:
        """Note the locks that a record names; return the number of noted locks."""
        self._names |= dict.fromkeys(event.id for event in PICKER.of(read.record.seqnum, read.envelope))
        return len(self._names)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """Append checkpoints of the noted locks whose records are older than `carry_ms`, and trim the records before them.

        Returns:
            The number of checkpoints, and of locks that cannot be read.

        Raises:
            Conflict: the fence moved.
        """
        names, self._names = list(self._names), {}
        carried = unreadable = 0
        for at in range(0, len(names), AT_ONCE):
            some = names[at : at + AT_ONCE]
            views = await self._views(some)
            unreadable += len(some) - len(views)
            due = {name: view for name, view in views.items() if lock_rules.must_rewrite(view, now_ms, carry_ms)}
            made = await self._append(due, fence)
            carried += len(made)
            for name, view in views.items():
                checkpoint = made.get(name)
                if checkpoint is None:
                    marks = lock_rules.trim_marks(view, now_ms)
                else:
                    marks = lock_rules.trim_marks_under(view, checkpoint)
                trim_to(self._trimmer, name, marks)
        await self._trimmer.flush()
        return carried, unreadable

    async def tend(self) -> None:
        """Do nothing: locks have no other upkeep here."""

    async def _views(self, names: Sequence[str]) -> dict[str, LockView]:
        """Read the locks that can be read. A lock that cannot be read keeps its own term and holds up no other one."""
        try:
            return await lock_reading.read_many(self._log, names)
        except BokiError as error:
            if error.retryable:
                raise
            if len(names) == 1:
                log.warning("lock unreadable: its term is kept", name=names[0], error=str(error))
                return {}
        half = len(names) // 2
        return {**await self._views(names[:half]), **await self._views(names[half:])}

    async def _append(self, due: Mapping[str, LockView], fence: Expected) -> dict[str, int]:
        """Append checkpoints of locks that did not change since they were read.

        Returns:
            The seqnum of each checkpoint, by lock.

        Raises:
            Conflict: the fence moved.
        """
        streams = {tags.lock_checkpoint(name): name for name in due}
        states = [
            State(stream, due[name].position, Checkpoint(name, due[name].position, due[name].queue))
            for stream, name in streams.items()
        ]
        return {streams[stream]: at for stream, at in (await append_states(self._log, states, fence)).items()}


def trim_to(trimmer: Trimmer, name: str, marks: LockTrim) -> None:
    """Add what is to be trimmed of a lock to a trimmer."""
    streams = {tags.lock(name): marks.records, tags.lock_checkpoint(name): marks.checkpoints}
    going = {stream: before for stream, before in streams.items() if before}
    if going:
        trimmer.add_together(going, forget=marks.forget)


async def carry_old(opened: Log, fence: Expected, now_ms: int, carry_ms: int) -> int:
    """Rewrite the locks that have records as old as a term; return how many there were.

    Args:
        opened: the log of the book.
        fence: the expectation that the caller still owns its partition.
        now_ms: the time by the clock of the log.
        carry_ms: the age of old records.

    Raises:
        Conflict: the fence moved.
    """
    carried, count = LockCarried(opened), 0
    async for item in opened.book.read(start=1):
        if isinstance(item, boki.Gap):
            continue
        if now_ms - item.time_ms < carry_ms:
            break
        if await _collected(opened, carried, item) >= AT_ONCE:
            count += (await carried.carry(now_ms, fence, carry_ms=carry_ms))[0]
    return count + (await carried.carry(now_ms, fence, carry_ms=carry_ms))[0]


async def _collected(opened: Log, carried: LockCarried, record: boki.Record) -> int:
    try:
        return carried.collect(Read(record, await opened.open(record)))
    except BokiError as error:
        if error.retryable:
            raise
        return 0  # the record is of another program or a later version: it keeps its term
