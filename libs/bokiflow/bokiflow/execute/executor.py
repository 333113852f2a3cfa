"""Runs one workflow against the log: delivers to its code what comes, appends what it did, runs what it asked for.

- All its records expect its claim. A Conflict on it means that somebody else runs the workflow now: it stops, and nothing that it
  had not in the log has happened for anybody.
- A result is delivered to the code at once, and is in the next record together with what the code did then; bodies and answers
  wait until that is in the log.
- What the code looks at (`Instance.look`) is delivered before anything else, once all deliveries before it are in the log.
- The code is run from callbacks of the outer loop. Appends and bodies are tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from boki_common.errors import BokiError, Conflict, Trimmed, UsageError
from boki_common.logs import get_logger
from boki_common.runtime.code_watch import CodeStuck
from bokiflow.errors import CannotLook, IdReused, NonDeterminism, StepInterrupted, WorkflowStuck
from bokiflow.execute import composing, family, looking
from bokiflow.execute.carrying import Carrying
from bokiflow.execute.composing import Composer
from bokiflow.execute.family import CalledParts
from bokiflow.execute.hosting import Host
from bokiflow.execute.timers import DurableTimers, TimerDue
from bokiflow.execute.under_way import Body, BodyEnded, Received, StepWithdrawn, Turn, UnderWay
from bokiflow.history import history_checkpoint
from bokiflow.locks import lock_room
from bokiflow.locks.lock_room import Ready
from bokiflow.model import flow_events as events
from bokiflow.model import records
from bokiflow.model.delivery_order import RecordedEvents, in_order, parts_left
from bokiflow.model.flow_events import Attempted, Incoming
from bokiflow.model.history_fold import History, bytes_of
from bokiflow.model.outcomes import Outcome, failed
from bokiflow.model.record_batcher import AROUND_BYTES, Batch, BatchEntry, RecordBatcher, size_of
from bokiflow.model.stacks import stuck
from bokiflow.runtime import transactional
from bokiflow.runtime.calls import Workflow
from bokiflow.runtime.commands import CancelCommand, RunStep, SetTimer, SnapshotRead
from bokiflow.runtime.instance import Instance
from bokiflow.runtime.lock_entries import TakeLock
from bokiflow.runtime.transactional import ReadyTransaction, TransactionCommit

T = TypeVar("T")

log = get_logger(__name__)

_Item: TypeAlias = BodyEnded | StepWithdrawn | TimerDue | Turn | Received | ReadyTransaction | Ready


class _Faulted(NamedTuple):
    """The program's set-up is wrong: the workflow is blocked once what was delivered to its code is in the log."""

    error: Exception


_After: TypeAlias = Body | events.Ended | events.Restarted | _Faulted


class Executor:
    """See the module.

    Attributes:
        id: of the workflow. instance: its code. position: what comes from others at or below it was delivered already.
    """

    def __init__(
        self,
        host: Host,
        history: History,
        workflow: Workflow[..., Any],
        claim: int,
        position: int,
        *,
        tells_waiting: bool = False,
    ) -> None:
        """
        Args:
            claim: seqnum of its claim. position: up to where its history was read.
            tells_waiting: record `Waits` the first time that the workflow runs nothing.
        """
        self.id: Final = history.started.id
        self.instance = Instance(history.begins, workflow, history.restarted)
        self.position = position
        self._host = host
        self._start: Final = history.start
        self._watch_code()
        self._composer: Final = Composer(
            host, records.InstanceStreams(self.id, history.started.group), claim, history.start
        )
        self._topics: Final = dict.fromkeys(history.topics)
        self._flush: Final[RecordBatcher[_After]] = RecordBatcher(position, bytes_of(history))
        self._inbox: deque[_Item] = deque()
        self._called: Final = CalledParts(self._abandon, self._schedule)
        self._under_way: Final = UnderWay(
            host, history.begins, history.start, self._composer.held, self._ended, self._moved, self._called
        )
        self._parts_left: list[Attempted] = []
        """Parts of transactions that were called under earlier claims, and that the history does not account for."""
        self._appending: asyncio.Task[None] | None = None
        self._outer: Final = asyncio.get_running_loop()
        self._scheduled = False
        self._exclusive = False
        self._ending = False
        self._end_waits: Outcome | None = None
        """The outcome of the code, while starts of parts are under way that have to be cancelled before the end."""
        self._over = False
        self._tells_waiting = tells_waiting
        self._carrying: Final = Carrying(host, self._composer, history.carried_ms)
        self._timers: Final = DurableTimers(host.log, self._ended, by_calendar=workflow.by_calendar)

    # -- from outside

    def begin(self, records: Sequence[RecordedEvents]) -> None:
        """Runs it from what its history has, soon."""
        if self._host.finishing:
            self.finish()
        self._parts_left = parts_left(records)
        replay = self.instance.replaying(in_order(records), self._start)
        self._outer.call_soon(self._guarded, lambda: self._replay_on(replay))

    def receive(self, seqnum: int, time_ms: int, incoming: tuple[Incoming, ...]) -> None:
        """Takes what others sent; what it has already is passed."""
        if seqnum <= self.position or self._over:
            return
        self.position = seqnum
        self._inbox.extend(Received(seqnum, time_ms, event) for event in incoming)
        self._schedule()

    def finish(self) -> None:
        """Begin no step from now on: the worker is being drained, and the next one begins them."""
        self._flush.hold(self._may_happen)
        self._under_way.withdraw()

    def _may_happen(self, after: _After) -> bool:
        """Return whether something may happen that waits for a record of which a part is held back: bodies asked for before that."""
        held = {getattr(entry.event, "key", "") for entry in self._flush.held}
        return isinstance(after, Body) and after.key not in held

    def close(self) -> list[asyncio.Task[None]]:
        """Stop it where it is: the worker that claims it next resumes it. Return the cancelled tasks that end now.

        Once they have ended, each record that was under way is in the log, or never will be. A body that swallows its cancellation may run
        on; nothing of it is recorded.
        """
        appending, ending = self._appending, self._stop()
        if appending is not None and appending is not asyncio.current_task():
            appending.cancel()
            ending.append(appending)
        return ending

    def carry(self) -> asyncio.Future[bool]:
        """Makes a checkpoint of its history, so that older records may go; whether it did, later: not if it is over before."""
        carrying = self._carrying.ask()
        if self._over:
            self._carrying.not_done()
        else:
            self._schedule()
        return carrying

    @property
    def carried_ms(self) -> int:
        """When its oldest record was written, by the clock of the log."""
        return self._carrying.carried_ms

    @property
    def claim(self) -> int:
        """Under which it runs."""
        return self._composer.held[self._composer.place.fence] or 0

    @property
    def _now_ms(self) -> int:
        """Of what is delivered now."""
        return max(self.instance.now_ms, self._host.log.now_ms())

    @property
    def running_steps(self) -> list[str]:
        """Names of steps whose functions run."""
        return self._under_way.steps

    def steps_since(self, since_s: float) -> list[str]:
        """See `under_way.UnderWay`."""
        return self._under_way.steps_since(since_s)

    @property
    def idle(self) -> bool:
        """Whether nothing of it is under way: it waits for a time, or for others, or its end is held back."""
        return self._under_way.nothing and not self.recording

    @property
    def recording(self) -> bool:
        """Whether a record of it is under way, or due as soon as its code has run."""
        waiting = self._inbox and not (self._ending and self._flush.held)
        return bool(self._appending or waiting or self._scheduled)

    # -- running the code

    def _guarded(self, call: Callable[[], None]) -> None:
        if self._over:
            return
        try:
            call()
        except (NonDeterminism, WorkflowStuck) as error:
            self._block(error)
        except CodeStuck as stopped:
            assert self._host.watch is not None
            self._block(stuck(self.id, self.instance.stack_of(stopped.stack), self._host.watch.after_s))
        except Exception as error:  # noqa: BLE001 - a defect: this workflow stops, the others go on
            log.error("a workflow cannot be run", id=self.id, error=repr(error))
            self._block(error)

    def _watch_code(self) -> None:
        watch = self._host.watch
        guard = None if watch is None else lambda call: watch.run(call, self._report_stuck)
        self.instance.watch(guard, self._block)
        self.instance.log, self.instance.start = self._host.log, self._start

    def _report_stuck(self, stack: str) -> None:
        """Code of this workflow keeps the event loop from running; called by the watching thread."""
        self._host.stuck(self.id, self.claim, self.instance.stack_of(stack))

    def _block(self, error: BaseException) -> None:
        if self._over:
            return
        open_parts = self._called.open
        self._stop()
        self._host.blocked(self.id, error, self.claim, self.carried_ms)
        if open_parts:  # the next claim cancels them in any case, but that may take long
            self._host.append_later(
                family.cancelling(self._composer.place.group, open_parts[: family.CANCELLED_AT_ONCE])
            )

    def _replay_on(self, replay: Iterator[None]) -> None:
        """Replays up to where the code looks at something, and goes on once that was delivered."""
        for _ in replay:
            self._look(lambda: self._replay_on(replay))
            return
        for entry in self.instance.locks.queued.values():
            self._host.locks.touched(entry.name)
        for part in self._parts_left:
            self._abandon(part)
        self._parts_left.clear()
        self._collect()
        self._send()
        self._tell_waiting()

    def _look(self, then: Callable[[], None]) -> None:
        """Asks for what the code looks at; nothing else is delivered meanwhile."""
        if self._exclusive or not self.instance.reads.waiting or self._ending:
            return
        looks, place = list(self.instance.reads.waiting), self.instance.reads.cursor
        self._run_exclusively(lambda: looking.answers(looks, place), lambda answers: self._looked(looks, answers, then))

    def _looked(self, looks: Sequence[SnapshotRead], answers: Sequence[Any], then: Callable[[], None]) -> None:
        for look, answer in zip(looks, answers, strict=True):
            if self.instance.reads.waiting:  # else it ended
                self.instance.answer(look, answer)
        then()

    def _schedule(self) -> None:
        if not self._scheduled and not self._over:
            self._scheduled = True
            self._outer.call_soon(self._guarded, self._pump)

    def _ended(self, item: _Item) -> None:
        """Something that was under way ended."""
        self._inbox.append(item)
        self._schedule()

    def _abandon(self, part: Attempted) -> None:
        """Have a part of a transaction cancelled that nothing waits for any more: before anything else that happens from here on."""
        self._flush.add(self._composer.abandoned(part))
        self._schedule()

    def _moved(self, held: Mapping[str, int | None]) -> None:
        """A record that expected this claim was refused: somebody else runs it now, unless it was claimed anew here."""
        if held == self._composer.held:
            self._outer.call_soon(self.park)

    def _pump(self) -> None:
        self._scheduled = False
        while self._inbox and not (self._ending or self._exclusive or self.instance.reads.waiting):
            first = self._inbox[0]
            if self._flush.held and not isinstance(first, BodyEnded | StepWithdrawn):
                pass  # the code stands still but for steps that ran: the next worker delivers everything else
            elif isinstance(
                first, ReadyTransaction | Ready
            ):  # a record of its own: it waits for those before, and the next for it
                if self._appending is not None or not self._flush.is_empty:
                    break
                if isinstance(first, Ready):
                    self._take_place(first)
                else:
                    self._commit(first)
            else:
                self._deliver(first)
            self._inbox.popleft()
            self._collect()
        if self._end_waits is not None:
            self._end(self._end_waits)
        self._send()
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        """Record that nothing is under way, if that is asked for: workers that are lost from now on are not lost by this workflow."""
        if self._tells_waiting and not self._over and self.idle:
            self._tells_waiting = False
            self._flush.add(BatchEntry(events.Waits(self.id)))
            self._send()

    def _commit(self, ran: ReadyTransaction) -> None:
        wait, ask = self.instance.pending.get(ran.key), self._under_way.ran(ran.key)
        if wait is None or ask is None:
            self._under_way.give_up(ran)  # the code waits for it no more
            return
        event = events.Transacted(self.id, ran.key, wait.name, wait.digest, self._now_ms, ran.outcome, self._flush.seen)
        one = TransactionCommit(ask, ran, self._composer.place, self._composer.held, event)
        self._run_exclusively(
            one.commit, lambda became: self._committed(one, became), lambda: self._under_way.give_up(one.ran)
        )

    def _take_place(self, ready: Ready) -> None:
        key, wait = ready.ask.key, self.instance.pending.get(ready.ask.key)
        if wait is None:
            return
        now_ms = self._now_ms
        event: events.Queued | events.Locked = events.Queued(self.id, key, wait.name, now_ms)
        if ready.at_once:
            event = events.Locked(self.id, key, wait.name, wait.digest, now_ms)
        part = records.worker_event(self._composer.place, event, self._composer.held)
        seen = self._flush.seen
        self._run_exclusively(
            lambda: lock_room.append(self._host.log, ready, part, seen),
            lambda seqnum: self._placed(ready, event, seqnum),
        )

    def _rides(self, ask: TakeLock) -> bool:
        """Whether a place in the lock's queue can go with what was done before; then a lock takes no record but that of its turn."""
        instance = self.instance
        waits = instance.outcome is None and ask.key in instance.pending and ask.key not in instance.locks.queued
        return waits and not ask.try_ and self._flush.has_open_batch

    def _take_place_along(self, ask: TakeLock) -> None:
        event = events.Queued(self.id, ask.key, ask.name, self._now_ms)
        self._flush.add(self._composer.place_taken(event, lock_room.entry_of(ask, self.id, self._under_way.age)))
        self.instance.deliver(event, event.at_ms)

    def _run_exclusively(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        then: Callable[[T], None],
        stopped: Callable[[], None] = lambda: None,
    ) -> None:
        """Read, or append a record, while nothing is delivered to the code.

        Args:
            then: called with the result. stopped: called in its place if the workflow was stopped here meanwhile.
        """

        async def run() -> None:
            try:
                became = await work()
            except asyncio.CancelledError:
                raise
            except CannotLook as error:
                self._outer.call_soon(self._block, error)
            except BokiError as error:
                log.warning("a workflow is given up for now", id=self.id, error=str(error))
                self._outer.call_soon(self.park)
            except BaseException as error:  # noqa: BLE001 - the process ends: waiters get the error
                self._outer.call_soon(self._block, error)
            else:
                self._outer.call_soon(self._exclusive_result, lambda: self._exclusive_ended(then, became), stopped)

        self._exclusive = True
        self._appending = self._outer.create_task(run(), name="bokiflow record")

    def _exclusive_result(self, ended: Callable[[], None], stopped: Callable[[], None]) -> None:
        if self._over:
            stopped()
        else:
            self._guarded(ended)

    def _exclusive_ended(self, then: Callable[[T], None], became: T) -> None:
        self._appending, self._exclusive = None, False
        then(became)
        self._schedule()
        self._send()

    def _placed(self, ready: Ready, event: events.Queued | events.Locked, seqnum: int | None) -> None:
        """It has a place in the lock's queue; 0: the lock moved, None: somebody else runs the workflow."""
        if seqnum is None:
            self.park()
        elif seqnum:
            self._host.locks.touched(event.name)
            placed = msgspec.structs.replace(event, number=seqnum)
            self.instance.deliver(placed, placed.at_ms)
            self.instance.reads.cursor = seqnum
            if isinstance(placed, events.Queued):
                self._wait_turn(placed.key, placed.name, seqnum)
            self._collect()
        elif event.key in self.instance.pending:
            self._under_way.begin(ready.ask._replace(again=True))

    def _place_known(self, event: events.Queued, seqnum: int) -> None:
        """A place that went with other things is in the log."""
        self._host.locks.touched(event.name)
        if self.instance.locks.placed(event.key, seqnum) and event.key in self.instance.pending:
            self._wait_turn(event.key, event.name, seqnum)

    def _wait_turn(self, key: str, name: str, number: int) -> None:
        def on_turn(refused: Outcome | None) -> None:
            self._ended(Turn(key, number) if refused is None else BodyEnded(key, refused))

        self._host.locks.wait(self.id, key, name, number, on_turn)

    def _committed(self, one: TransactionCommit, became: int | Outcome) -> None:
        ask, event = one.command, one.event
        if isinstance(became, Outcome):
            self._ended(BodyEnded(ask.key, became))
        elif became == transactional.PARK:
            self.park()
        elif became > 0:
            self._flush.bytes += size_of(event) + AROUND_BYTES
            self.instance.deliver(event, event.at_ms)
            self.instance.reads.cursor = became
            self._collect()
        elif ask.key in self.instance.pending:
            self._under_way.begin(*one.again(became))
        else:
            self._under_way.give_up(one.ran)

    def _deliver(self, item: _Item) -> None:
        instance = self.instance
        if isinstance(item, Received):
            self._flush.saw(item.seqnum)
            self._flush.bytes += size_of(item.event) + AROUND_BYTES
            instance.deliver(item.event, item.time_ms)
            instance.reads.cursor = max(instance.reads.cursor, item.seqnum)
            return
        now_ms = self._now_ms
        assert not isinstance(item, ReadyTransaction | Ready)
        if isinstance(item, Turn):
            if (wait := instance.pending.get(item.key)) is not None:
                self._happened(events.Locked(self.id, item.key, wait.name, wait.digest, now_ms, item.number))
        elif isinstance(item, TimerDue):
            if self._timers.fires(item.ask, instance.now_ms):
                self._happened(events.Fired(self.id, item.ask.key, max(now_ms, item.ask.due_ms)))
        elif (wait := instance.pending.get(item.key)) is None:
            return
        elif isinstance(item, StepWithdrawn):
            self._flush.add(BatchEntry(events.Withdrawn(self.id, item.key, wait.name), note=True))
        elif item.unfit is not None:
            raise item.unfit
        else:
            how = (item.outcome, item.took_ms, item.attempts, item.part)
            self._happened(events.Stepped(self.id, item.key, wait.name, wait.digest, now_ms, *how))

    def _happened(self, event: events.Delivered) -> None:
        self._flush.drop(event.key)
        self._flush.add(BatchEntry(event, delivers=True))
        self.instance.deliver(event, event.at_ms)

    def _collect(self) -> None:
        """Takes what the code did and asked for."""
        instance = self.instance
        if instance.fault is not None:
            if not self._ending:
                self._ending = True
                self._flush.when_appended(_Faulted(instance.fault))
            return  # mended code does it, and may do something else
        while instance.effects:
            event, spawn = instance.effects.popleft()
            if isinstance(event, events.Emitted):
                self._topics[event.topic] = None
            self._flush.add(self._composer.entry(event, spawn))
        while instance.commands:
            ask = instance.commands.popleft()
            if isinstance(ask, TakeLock) and self._rides(ask):
                self._take_place_along(ask)
            elif isinstance(ask, Body):
                self._ask_body(ask)
            elif isinstance(ask, CancelCommand):
                self._under_way.stop(ask.key)
            elif isinstance(ask, SetTimer):
                self._set_timer(ask)
            else:
                self._timers.unset(ask.key)
                self._flush.drop(ask.key)
        if instance.outcome is not None and not self._ending:
            self._end(instance.outcome)

    def _end(self, outcome: Outcome) -> None:
        self._ending, self._end_waits = True, None
        if self._called.undecided:
            self._end_waits = outcome
            return
        over, more_bytes = composing.over(
            *(self.instance, self._start, outcome, self._topics, self.carried_ms, self._flush.bytes),
            now_ms=self._now_ms,
        )
        self._flush.add(BatchEntry(over, more_bytes=more_bytes))
        self._flush.when_appended(over)

    def _begin_anew(self, restarted: events.Restarted, seqnum: int, seen: int) -> None:
        """The run is over, and the next one in the log."""
        self._under_way.stop_all()
        self._timers.stop()
        self.instance.drop()
        self.instance = Instance(restarted.started, self.instance.workflow, restarted)
        self._watch_code()
        self._ending, self._flush.bytes = False, size_of(restarted)
        self.instance.begin()
        self._collect()
        self._schedule()
        self._under_way.later(
            history_checkpoint.trim_history_before(self._host.log, self._composer.place, seqnum, seen)
        )

    def _ask_body(self, ask: Body) -> None:
        if ask.key not in self.instance.pending:
            return
        entry = self.instance.locks.queued.get(ask.key)
        if entry is not None:  # it has its place since before a takeover
            self._wait_turn(ask.key, entry.name, entry.number)
            return
        if isinstance(ask, RunStep) and ask.key in self.instance.begun:
            error = StepInterrupted(
                f"step {ask.step.name!r} was begun, and it is not known how it ended: look whether it happened. If it did not, "
                f"`boki flow fork {self.id}` does the step again; or catch StepInterrupted in the workflow"
            )
            self._ended(BodyEnded(ask.key, failed(error)))
            return
        if isinstance(ask, RunStep) and ask.key in self.instance.withdrawn:
            again = events.Withdrawn(self.id, ask.key, ask.step.name, again=True)
            self._flush.add(BatchEntry(again, begins=True))
        self._flush.when_appended(ask)

    def _set_timer(self, ask: SetTimer) -> None:
        if ask.key not in self.instance.timers:
            return
        self._flush.add(BatchEntry(events.Sleeping(self.id, ask.key, ask.due_ms), lazy=True))
        self._timers.set(ask, self.instance.now_ms)

    # -- appending

    def _send(self) -> None:
        while self._appending is None and not self._over:
            if self._carrying.wanted and not self._ending:
                self._appending = self._outer.create_task(self._carry(), name=f"bokiflow append of {self.id}")
                return
            batch = self._flush.next()
            if batch is None:
                self._look(self._collect)
                return
            if batch.entries:
                self._appending = self._outer.create_task(self._append(batch), name=f"bokiflow append of {self.id}")
            else:
                self._done(batch, 0)

    async def _append(self, batch: Batch[_After]) -> None:
        self._composer.prepare(batch, self.instance)
        try:
            seqnum, taken = await self._composer.append(batch)
        except BaseException as error:  # noqa: BLE001 - see there
            self._failed(error)
            return
        if seqnum is None:
            self._outer.call_soon(self.park)
            return
        for key, child in taken:
            reused = IdReused(f"a workflow {child!r} was started by somebody else", id=child)
            self._inbox.append(BodyEnded(key, failed(reused)))
        self._outer.call_soon(self._guarded, lambda: self._acked(batch, seqnum))

    def _failed(self, error: BaseException) -> None:
        """An append failed. Raises CancelledError."""
        if isinstance(error, asyncio.CancelledError):
            raise error
        if isinstance(error, BokiError) and not isinstance(error, UsageError):
            # It may or may not be in the log. Whoever claims the workflow next reads which.
            log.warning("a workflow is given up for now", id=self.id, error=str(error))
            self._outer.call_soon(self.park)
        else:  # it will not be any better the next time; or the process ends: waiters get the error
            self._outer.call_soon(self._block, error)

    async def _carry(self) -> None:
        try:
            claim, history = await self._carrying.append()
        except (Conflict, Trimmed):
            self._outer.call_soon(self.park)
        except BaseException as error:  # noqa: BLE001 - see there
            self._failed(error)
        else:
            self._outer.call_soon(self._guarded, lambda: self._after_carry(claim, history))

    def _after_carry(self, claim: int, history: History) -> None:
        self._appending = None
        self._under_way.later(self._carrying.appended(claim, history))
        self._schedule()
        self._send()

    def _acked(self, batch: Batch[_After], seqnum: int) -> None:
        self._appending = None
        for entry in batch.entries:
            if isinstance(entry.event, events.Unlocked):
                self._host.locks.touched(entry.event.name)
            elif isinstance(entry.event, events.Queued):
                self._place_known(entry.event, seqnum)
        self._composer.acked(batch, seqnum)
        if batch.delivers:
            self.instance.reads.cursor = max(self.instance.reads.cursor, seqnum)
        self._done(batch, seqnum)
        if self._inbox:
            self._schedule()
        self._send()

    def _done(self, batch: Batch[_After], seqnum: int) -> None:
        """What was done before is in the log: what waited for it may happen."""
        for after in batch.after:
            if isinstance(after, events.Ended):
                self._stop()
                self._host.ended(self.id, after)
            elif isinstance(after, events.Restarted):
                self._begin_anew(after, seqnum, batch.seen)
            elif isinstance(after, _Faulted):
                self._block(after.error)
            elif after.key in self.instance.pending and not self._under_way.runs(after.key):
                self._under_way.begin(after)

    # -- the end of it here

    def park(self) -> None:
        """Somebody else runs it now: it is stopped here."""
        if not self._over:
            self._stop()
            self._host.parked(self.id)

    def _stop(self) -> list[asyncio.Task[None]]:
        self._over = True
        bodies = self._under_way.stop_all()
        self._timers.stop()
        self._inbox.clear()
        self.instance.drop()
        self._carrying.not_done()
        return bodies
