"""Locks as one process sees them: reads their queues, waits for turns, and lets what is over be trimmed.

    ready = await room.look(ask, ...)            # may it be had? nothing is written
    seqnum = await append(log, ready, part, …)   # the place in the queue, with the workflow's own part, in one record
    room.wait(id, key, name, seqnum, on_turn)    # called when its turn has come; no record is written meanwhile

- What is free as of a snapshot is taken by an append that expects the lock's stream not to have moved since. Who waits joins the
  queue without a condition: then nobody fails because of others.
- What is over is trimmed soon, so that a lock is quick to read; what is held for days is carried (`lock_carry`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, NamedTuple

import boki
from boki_common.errors import BokiError, Conflict
from boki_common.logs import get_logger
from bokiflow.locks import lock_reading
from bokiflow.locks.lock_carry import carry_old, trim_to
from bokiflow.model import lock_rules, lock_view
from bokiflow.model.lock_rules import PICKER, Checkpoint, Enqueued, Queue
from bokiflow.model.lock_view import View
from bokiflow.model.outcomes import Outcome, failed
from bokiflow.runtime.lock_seats import TakeLock
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.pauses import pauses
from bokilib.records import tags
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution, joined
from bokilib.retention.trimmer import Trimmer

TOUCHED: Final = 10_000
"""Locks that may have something to trim; one more is found when it is used again."""
ROUNDS: Final = 64
"""At most so many rounds between two looks at a lock that somebody holds."""
CARRY_EVERY_MS: Final = 600_000
"""From one look through the old part of the book to the next."""

log = get_logger(__name__)

OnTurn = Callable[[Outcome | None], None]
"""None: it holds the lock; else it never will."""


class Ready(NamedTuple):
    """What is to be appended for who asked: its place, which it has at once if the lock is still as of `position`."""

    ask: TakeLock
    entry: Enqueued
    position: int
    at_once: bool


def entry_of(ask: TakeLock, owner: str, age: int) -> Enqueued:
    """What takes a place in the queue."""
    return Enqueued(ask.name, owner, ask.key, ask.shared, age, ask.waits_for_any)


async def append(opened: Log, ready: Ready, part: Contribution, seen: int) -> int | None:
    """Takes a place, in one record with the workflow's part. Returns where; 0: the lock moved; None: somebody else runs the workflow.

    Raises:
        Errors of the log: the outcome is unknown.
    """
    stream = tags.lock(ready.ask.name)
    expect = {stream: ready.position} if ready.at_once else {}
    one = joined([part, Contribution((stream,), expect, (ready.entry,))])
    try:
        return await opened.append(one, seen=seen, settle=True)
    except Conflict as conflict:
        return None if opened.moved(part.expect, conflict) else 0


class _Waiting(NamedTuple):
    number: int
    on_turn: OnTurn


class _Watched:
    """A lock that somebody here waits for, as far as it was read."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.queue: Queue = ()
        self.position = 0
        self.waiting: Final[dict[tuple[str, str], _Waiting]] = {}


class LockRoom:
    """See the module."""

    def __init__(self, opened: Log) -> None:
        self._log: Final = opened
        self._follower: Final = Follower(opened)
        self._trimmer: Final = Trimmer(opened.book)
        self._watched: Final[dict[str, _Watched]] = {}
        self._names: Final[dict[str, dict[str, str]]] = {}
        """Of each workflow that waits: its calls, and for which lock."""
        self._touched: Final[dict[str, tuple[int, int]]] = {}
        """Of each: rounds until it is looked at, and how many it will be the next time."""
        self._carry_at_ms = 0
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
                view = await lock_reading.read(self._log, ask.name)
                break
            except BokiError as error:
                if not error.retryable:
                    return failed(error)
            await asyncio.sleep(pause.next())
        entry = entry_of(ask, owner, age)
        if lock_rules.is_free(view.queue, ask.shared):
            return Ready(ask, entry, view.position, ask.try_ or not ask.again)
        if ask.try_ or not lock_rules.may_wait(view.queue, age, ask.waits_for_any):
            return failed(lock_rules.refusal(ask.name, view.queue, age, ask.waits_for_any))
        return Ready(ask, entry, view.position, False)

    # -- waiting

    def wait(self, id: str, key: str, name: str, number: int, on_turn: OnTurn) -> None:
        """Calls `on_turn` when the place `number` has its turn, or lost it."""
        self._names.setdefault(id, {})[key] = name
        watched = self._watched.get(name)
        if watched is None:
            watched = self._watched[name] = _Watched(name)
            self._spawn(self._watch(watched))
        watched.waiting[id, key] = _Waiting(number, on_turn)
        self._notify(watched)

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
            self._touched.pop(name, None)  # what comes while it is read is not forgotten, nor are others who look
            try:
                view = await lock_reading.read(self._log, name)
            except BokiError:
                self._touched.setdefault(name, (0, then))
                raise
            if view.queue:
                self._touched.setdefault(name, (then, min(ROUNDS, then * 2)))
                await self._checkpoint(name, view)
            else:
                trim_to(self._trimmer, name, lock_view.trim_marks(view))
        await self._trimmer.flush()
        return looked

    async def _checkpoint(self, name: str, view: View) -> None:
        made = Checkpoint(name, view.position, view.queue)
        if not lock_view.is_long(view):
            return
        stream = tags.lock_checkpoint(name)
        try:
            seqnum = await self._log.append(Contribution((stream,), {stream: view.position}, (made,)), settle=True)
        except Conflict:
            return  # somebody else made one
        trim_to(self._trimmer, name, lock_view.trim_marks_under(view, seqnum))

    async def carry(self, now_ms: int, fence: Expected, carry_ms: int) -> int:
        """Writes anew what of all locks of the book is as old as a term, if that was not looked at lately; returns how many.

        Args:
            now_ms: by the clock of the log. fence: of whoever does it, for its group.

        Raises:
            Conflict: the fence moved. Errors of the log.
        """
        if now_ms < self._carry_at_ms:
            return 0
        count = await carry_old(self._log, fence, now_ms, carry_ms)
        self._carry_at_ms = now_ms + min(CARRY_EVERY_MS, carry_ms)
        return count
