"""Runs one workflow against the log: delivers events to its code, appends what the code did, and runs the bodies that it asked for.

Everything that happens to the workflow comes through its inbox, or is the result of its *operation*: the one append or read that is under
way. Each calls `Executor._turn`, in a callback of the event loop since it runs the code. A turn reads from top to bottom:

    replay the history                 until its end, or until the code reads the log
    deliver the items of the inbox     and collect the effects and commands of the code after each
    begin the next operation           a checkpoint, a record, or a read of the log by the code

- Every record expects the claim. After a Conflict another worker runs the workflow: it stops here, and whatever it had not in the log has
  not happened for anybody.
- An outcome is delivered to the code at once. It is in the next record, together with the effects that followed. Bodies and answers wait
  until that record is in the log.
- While a record is appended, deliveries go on and fill the next record. During an *exclusive* operation nothing is delivered: a record of
  its own (a transaction, an entry in a lock's queue), or a read of the log by the code (`Instance.look`), which is answered before anything
  else is delivered, once all deliveries before it are in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from boki_common.errors import BokiError, Conflict, Trimmed, UsageError
from boki_common.logs import get_logger
from boki_common.runtime.code_watch import CodeStuck
from bokiflow.errors import CannotLook, IdReused, NonDeterminism, StepInterrupted, WorkflowStuck
from bokiflow.execute import transaction_children
from bokiflow.execute.inbox import BodyEnded, Inbox, Item, LockTurn, Received, StepWithdrawn, TimerDue
from bokiflow.execute.record_builder import RecordBuilder, last_event
from bokiflow.execute.running_tasks import Body, RunningTasks
from bokiflow.execute.timers import DurableTimers
from bokiflow.execute.transaction_children import CalledParts
from bokiflow.execute.worker_host import WorkerHost
from bokiflow.history import history_checkpoint
from bokiflow.locks import lock_room
from bokiflow.locks.lock_room import Ready
from bokiflow.model import flow_events as events
from bokiflow.model import records
from bokiflow.model.delivery_order import RecordedEvents, in_order, parts_left
from bokiflow.model.flow_events import Attempted, Incoming
from bokiflow.model.history_fold import History, bytes_of
from bokiflow.model.outcomes import Outcome, failed
from bokiflow.model.record_batcher import AROUND_BYTES, BatchEntry, EventBatch, RecordBatcher, delivers, size_of
from bokiflow.model.stacks import stuck
from bokiflow.runtime import transactional
from bokiflow.runtime.calls import Workflow
from bokiflow.runtime.commands import CancelCommand, RunStep, SetTimer, SnapshotRead, TakeLock
from bokiflow.runtime.instance import Instance, PendingCall
from bokiflow.runtime.transactional import ReadyTransaction, TransactionCommit
from bokilib.pauses import retried
from bokilib.stacks import described, stack_of


class CheckpointRequests:
    """The requests of one workflow.

    Attributes:
        carried_ms: when the oldest record of the history was written, in milliseconds by the clock of the log.
    """

    def __init__(self, host: WorkerHost, builder: RecordBuilder, carried_ms: int) -> None:
        self.carried_ms = carried_ms
        self._host: Final = host
        self._builder: Final = builder
        self._requested: asyncio.Future[bool] | None = None
        self._trimming: asyncio.Future[bool] | None = None

    @property
    def pending(self) -> bool:
        """True while a checkpoint is requested and not appended."""
        return self._requested is not None

    def request(self) -> asyncio.Future[bool]:
        """Request a checkpoint; return a future that is True once older records are trimmed. Requests share the next checkpoint."""
        if self._requested is None:
            self._requested = asyncio.get_running_loop().create_future()
        return self._requested

    async def append(self, *, own_uniques: bool) -> tuple[int, History] | None:
        """Append a checkpoint, while no other record of the workflow is under way.

        Returns:
            The claim that goes with it, and the history that it has; None if another worker runs the workflow.
        """
        builder = self._builder
        try:
            return await history_checkpoint.append_checkpoint(
                *(self._host.log, builder.place, builder.held, self._host.name), own_uniques=own_uniques
            )
        except (Conflict, Trimmed):
            return None

    def appended(self, claim: int, history: History) -> Coroutine[Any, Any, None]:
        """Note that the checkpoint is in the log; return the work that trims older records, on which nothing else depends."""
        place = self._builder.place
        self._builder.held[place.fence] = claim
        self.carried_ms = self._host.log.now_ms()
        trimming = self._trimming = self._requested
        self._requested = None

        async def trim() -> None:
            try:
                await history_checkpoint.trim_history_now(self._host.log, place, history, claim)
            finally:
                _resolve(trimming, done=True)

        return trim()

    def abandon(self) -> None:
        """Resolve all requests with False: the workflow stops here."""
        _resolve(self._requested, done=False)
        _resolve(self._trimming, done=False)
        self._requested = self._trimming = None


def _resolve(waiting: asyncio.Future[bool] | None, *, done: bool) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(done)


T = TypeVar("T")

FINISH_S: Final = 10.0
"""Bound of waiting for steps that run when an error of the code is about to block their workflow."""

log = get_logger(__name__)


class _Block(NamedTuple):
    """The workflow is blocked by an error once everything that was delivered to its code is in the log."""

    error: Exception


class _Raised(NamedTuple):
    """The error of an operation."""

    error: BaseException


_After: TypeAlias = Body | events.Ended | events.Restarted | _Block


class Executor:
    """The executor of one workflow, under one claim.

    Attributes:
        id: the id of the workflow.
        instance: its code.
        position: the seqnum up to which events of others were put into the inbox.
    """

    def __init__(
        self,
        host: WorkerHost,
        history: History,
        workflow: Workflow[..., Any],
        claim: int,
        position: int,
        *,
        tells_waiting: bool = False,
        own_uniques: bool = False,
    ) -> None:
        """Prepare to run a workflow; `begin` runs it.

        Args:
            host: the worker.
            history: the history of the workflow, as of `position`.
            workflow: its definition.
            claim: the seqnum of the claim.
            position: the seqnum up to which the history was read.
            tells_waiting: record `Waits` the first time that nothing of the workflow is under way.
            own_uniques: as the claim has it.
        """
        self.id: Final = history.started.id
        self.instance = Instance(history.begins, workflow, history.restarted)
        self.position = position
        self._host = host
        self._start: Final = history.start
        self._own_uniques: Final = own_uniques
        self._set_up_instance()
        place = records.InstanceStreams(self.id, history.started.group)
        self._builder: Final = RecordBuilder(host, place, claim, history.start)
        self._batcher: Final[RecordBatcher[_After]] = RecordBatcher(position, bytes_of(history))
        self._topics: Final = dict.fromkeys(history.topics)
        self._inbox: Final = Inbox(self._turn)
        self._called: Final = CalledParts(self._abandon, self._inbox.wake)
        self._tasks: Final = RunningTasks(
            host,
            history.begins,
            history.start,
            self._builder.held,
            self._inbox.put,
            self._failed,
            self._claim_moved,
            self._called,
        )
        self._timers: Final = DurableTimers(host.log, self._inbox.put, by_calendar=workflow.by_calendar)
        self._checkpoints: Final = CheckpointRequests(host, self._builder, history.carried_ms)
        self._parts_left: list[Attempted] = []
        """Parts of transactions that were called under earlier claims, and that the history does not account for."""
        self._loop: Final = asyncio.get_running_loop()
        self._replay: Iterator[None] | None = None
        """The rest of the replay; None after it."""
        self._operation: asyncio.Task[Any] | None = None
        self._exclusive = False
        self._ending = False
        """The code has ended, or is to be blocked: nothing is delivered to it."""
        self._outcome: Outcome | None = None
        """The outcome of code that has ended, while starts of parts are appended that have to be cancelled before the end."""
        self._error: Exception | None = None
        """The error that blocks the workflow once its last record is in the log."""
        self._finishing: asyncio.TimerHandle | None = None
        """The end of the time that running steps have before the workflow is blocked; None before."""
        self._stopped = False
        self._tells_waiting = tells_waiting

    # -- for the worker

    def begin(self, records: Sequence[RecordedEvents]) -> None:
        """Replay the history, and run the workflow from there."""
        if self._host.finishing:
            self.finish()
        self._parts_left = parts_left(records)
        self._replay = self.instance.replaying(in_order(records), self._start)
        self._inbox.wake()

    def receive(self, seqnum: int, time_ms: int, incoming: tuple[Incoming, ...]) -> None:
        """Take the events of a record that others sent, unless they are known."""
        if seqnum > self.position and not self._stopped:
            self.position = seqnum
            for event in incoming:
                self._inbox.put(Received(seqnum, time_ms, event))

    def finish(self) -> None:
        """Begin no step from now on: the worker is being drained, and the next one begins them."""
        self._batcher.hold(self._may_happen)
        self._tasks.finish()

    def _may_happen(self, after: _After) -> bool:
        """Return True for bodies whose commands were recorded although a part of the record is held back."""
        held = {getattr(entry.event, "key", "") for entry in self._batcher.held}
        return isinstance(after, Body) and after.key not in held

    def checkpoint(self) -> asyncio.Future[bool]:
        """Request a checkpoint of the history. The result tells whether older records were trimmed; not if the workflow stops first."""
        requested = self._checkpoints.request()
        if self._stopped:
            self._checkpoints.abandon()
        else:
            self._inbox.wake()
        return requested

    def block(self, error: Exception) -> None:
        """Block the workflow by an error that is not its code's, once everything that was delivered to the code is in the log."""
        self._block_when_recorded(error)

    def park(self) -> None:
        """Stop here, since another worker may run the workflow."""
        if self._error is not None:
            self._block(self._error)
        elif not self._stopped:
            self._stop()
            self._host.parked(self.id)

    def close(self) -> list[asyncio.Task[None]]:
        """Stop here; return the cancelled tasks that end now. The worker that claims the workflow next resumes it.

        Once they have ended, each record that was appended is in the log, or never will be. A body that swallows its cancellation may run
        on; its outcome is not recorded.
        """
        operation, ending = self._operation, self._stop()
        if operation is not None and operation is not asyncio.current_task():
            operation.cancel()
            ending.append(operation)
        return ending

    def _stop(self) -> list[asyncio.Task[None]]:
        self._stopped = True
        if self._finishing is not None:
            self._finishing.cancel()
        ending = self._tasks.stop_all()
        self._timers.stop()
        self._inbox.close()
        self.instance.drop()
        self._checkpoints.abandon()
        return ending

    @property
    def carried_ms(self) -> int:
        """When its oldest record was written, in milliseconds by the clock of the log."""
        return self._checkpoints.carried_ms

    @property
    def claim(self) -> int:
        """The seqnum of the claim under which it runs."""
        return self._builder.held[self._builder.place.fence] or 0

    @property
    def running_steps(self) -> list[str]:
        """Names of steps whose functions run."""
        return self._tasks.steps

    def steps_since(self, since_s: float) -> list[str]:
        """Return the steps that may have blocked the event loop since then; see `RunningTasks`."""
        return self._tasks.steps_since(since_s)

    @property
    def idle(self) -> bool:
        """True if it only waits: for a time, for others, or with its end held back for the next worker."""
        return self._tasks.idle and not self.recording

    @property
    def recording(self) -> bool:
        """True if a record of it is being appended, or will be after the next turn."""
        waiting = self._inbox.items and not (self._ending and self._batcher.held)
        return bool(self._operation or waiting or self._inbox.scheduled)

    # -- a turn

    def _turn(self) -> None:
        self._guarded(self._advance)

    def _advance(self) -> None:
        if self._replay is not None and not self._exclusive:
            self._continue_replay(self._replay)
        if self._replay is None:
            if self._finishing is None:
                self._deliver_items()
            else:
                self._record_ended_steps()
            if self._outcome is not None:
                self._end(self._outcome)
            self._begin_operation()
            self._tell_waiting()

    def _continue_replay(self, replay: Iterator[None]) -> None:
        for _ in replay:
            self._read_log()
            return
        self._replay = None
        for entry in self.instance.locks.queued.values():
            self._host.locks.touched(entry.name)
        for part in self._parts_left:
            self._called.abandon(part)
        self._parts_left.clear()
        self._collect()

    def _deliver_items(self) -> None:
        items = self._inbox.items
        while items and not (self._ending or self._exclusive or self.instance.reads.waiting):
            first = items[0]
            if self._batcher.held and not isinstance(first, BodyEnded | StepWithdrawn):
                pass  # of a workflow that is held back, only outcomes of steps are recorded: the next worker delivers the rest
            elif isinstance(first, ReadyTransaction | Ready):
                if self._operation is not None or not self._batcher.is_empty:
                    break  # a record of its own comes after all records before it
                if isinstance(first, Ready):
                    self._append_lock_entry(first)
                else:
                    self._commit(first)
            else:
                self._deliver(first)
            items.popleft()
            self._collect()

    def _begin_operation(self) -> None:
        while self._operation is None and not self._stopped:
            if self._checkpoints.pending and not self._ending:
                append = partial(self._checkpoints.append, own_uniques=self._own_uniques)
                self._operate(append, self._checkpointed)
                return
            batch = self._batcher.next()
            if batch is None:
                if self._finishing is not None and not self._tasks.steps:
                    self._block(self._error)
                elif self.instance.reads.waiting and not self._ending:
                    self._read_log()
                return
            if batch.items:
                self._builder.prepare(batch, self.instance)
                work, stopped = partial(self._builder.append, batch), partial(self._appended_late, batch)
                self._operate(work, partial(self._appended, batch), stopped=stopped)
            else:
                self._recorded(batch, 0)

    def _tell_waiting(self) -> None:
        """Record that nothing is under way: workers that are lost from now on do not count against this workflow (`held_back`)."""
        if self._tells_waiting and not self._stopped and self.idle:
            self._tells_waiting = False
            self._batcher.add(BatchEntry(events.Waits(self.id)))
            self._begin_operation()

    # -- the operation

    def _operate(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        then: Callable[[T], None],
        *,
        exclusive: bool = False,
        stopped: Callable[[T], None] = lambda _: None,
    ) -> None:
        """Begin an operation. No `Driver` runs it, since `then` runs the code, which only a callback of the event loop may do.

        Args:
            work: the append or read.
            then: called with its result at the beginning of a turn.
            exclusive: deliver nothing to the code meanwhile.
            stopped: called with its result instead of `then` if the workflow was stopped here meanwhile.
        """

        async def run() -> T | _Raised:
            try:
                return await work()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the process ends: waiters get the error
                return _Raised(error)

        self._exclusive = exclusive
        self._operation = self._loop.create_task(run(), name=f"bokiflow append of {self.id}")
        self._operation.add_done_callback(partial(self._operated, then, stopped))

    def _operated(
        self, then: Callable[[T], None], stopped: Callable[[T], None], done: asyncio.Task[T | _Raised]
    ) -> None:
        if done.cancelled():
            return
        result = done.result()
        if isinstance(result, _Raised):
            self._failed(result.error)
        elif self._stopped:
            stopped(result)
        else:
            self._operation, self._exclusive = None, False
            self._guarded(partial(then, result))
            self._turn()

    def _failed(self, error: BaseException) -> None:
        if self._stopped:
            return
        if isinstance(error, BokiError) and not isinstance(error, UsageError | CannotLook):
            # The next claim, perhaps of this worker, reads whether the record is in the log.
            log.warning("workflow parked: it is claimed and replayed again", id=self.id, error=str(error))
            self.park()
        else:
            self._unexpected(error)

    def _unexpected(self, error: BaseException) -> None:
        """Block the workflow, and log where the error comes from if it may be a defect. Other workflows go on.

        The host logs an error that ends a process, since it blocks no workflow.
        """
        if isinstance(error, Exception) and not isinstance(error, BokiError):
            text, stack = described(error), stack_of(error)
            log.error("workflow blocked by an unexpected error", id=self.id, error=text, stack=stack)
        self._block(error)

    def _appended(self, batch: EventBatch[_After], result: tuple[int | None, list[tuple[str, str]]]) -> None:
        seqnum, taken = result
        if seqnum is None:
            self.park()
            return
        for key, child in taken:
            reused = IdReused(f"a workflow {child!r} was started by somebody else", id=child)
            self._inbox.put(BodyEnded(key, failed(reused)))
        for entry in batch.items:
            if isinstance(entry.event, events.Unlocked):
                self._host.locks.touched(entry.event.name)
            elif isinstance(entry.event, events.Queued):
                self._lock_entry_appended(entry.event, seqnum)
        self._builder.appended(batch, seqnum)
        if delivers(batch):
            self.instance.reads.cursor = max(self.instance.reads.cursor, seqnum)
        self._recorded(batch, seqnum)

    def _appended_late(self, batch: EventBatch[_After], result: tuple[int | None, list[tuple[str, str]]]) -> None:
        """Run the children that a record has started although the workflow was stopped here meanwhile: they name this worker."""
        seqnum, _ = result
        if seqnum is not None:
            self._builder.appended(batch, seqnum)

    def _recorded(self, batch: EventBatch[_After], seqnum: int) -> None:
        """Let happen what waited for a batch, which is in the log."""
        for after in batch.after:
            if isinstance(after, events.Ended):
                self._stop()
                self._host.ended(self.id, after)
            elif isinstance(after, events.Restarted):
                self._restart(after, seqnum, batch.seen)
            elif isinstance(after, _Block):
                self._finish_steps(after.error)
            elif after.key in self.instance.pending and not self._tasks.runs(after.key):
                self._tasks.begin(after)

    def _checkpointed(self, made: tuple[int, History] | None) -> None:
        if made is None:
            self.park()
        else:
            self._tasks.later(self._checkpoints.appended(*made))

    def _read_log(self) -> None:
        """Read what the code waits for, as of the last delivery that is in the log."""
        reads, place = list(self.instance.reads.waiting), self.instance.reads.cursor
        self._operate(partial(read_all, reads, place), partial(self._answer, reads), exclusive=True)

    def _answer(self, reads: Sequence[SnapshotRead], values: Sequence[Any]) -> None:
        for read, value in zip(reads, values, strict=True):
            if self.instance.reads.waiting:  # the code may have ended
                self.instance.answer(read, value)
        if self._replay is None:
            self._collect()

    # -- transactions and locks

    def _commit(self, ran: ReadyTransaction) -> None:
        wait, command = self.instance.pending.get(ran.key), self._tasks.ran(ran.key)
        if wait is None or command is None:
            self._tasks.give_up(ran)  # the code does not wait for it any more
            return
        event = events.Transacted(
            self.id, ran.key, wait.name, wait.digest, self._now_ms, ran.outcome, self._batcher.seen
        )
        one = TransactionCommit(command, ran, self._builder.place, self._builder.held, event)
        self._operate(
            one.commit,
            partial(self._committed, one),
            exclusive=True,
            stopped=lambda _: self._tasks.give_up(one.ran),
        )

    def _committed(self, one: TransactionCommit, became: int | Outcome) -> None:
        command, event = one.command, one.event
        if isinstance(became, Outcome):
            self._inbox.put(BodyEnded(command.key, became))
        elif became == transactional.PARK:
            self.park()
        elif became > 0:
            self._batcher.bytes += size_of(event) + AROUND_BYTES
            self._called.abandoned.pop(event.key, None)
            self.instance.deliver(event, event.at_ms)
            self.instance.reads.cursor = became
            self._collect()
        elif command.key in self.instance.pending:
            self._tasks.begin(*one.again(became))
        else:
            self._tasks.give_up(one.ran)

    def _append_lock_entry(self, ready: Ready) -> None:
        """Append an entry of a lock's queue in a record of its own, with its lock if that is free."""
        key, wait = ready.ask.key, self.instance.pending.get(ready.ask.key)
        if wait is None:
            return
        now_ms = self._now_ms
        event: events.Queued | events.Locked = events.Queued(self.id, key, wait.name, now_ms)
        if ready.at_once:
            event = events.Locked(self.id, key, wait.name, wait.digest, now_ms)
        part = records.worker_event(self._builder.place, event, self._builder.held)
        work = partial(lock_room.append, self._host.log, ready, part, self._batcher.seen)
        self._operate(work, partial(self._own_lock_entry_appended, ready, event), exclusive=True)

    def _own_lock_entry_appended(self, ready: Ready, event: events.Queued | events.Locked, seqnum: int | None) -> None:
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
        elif event.key in self.instance.pending:  # the lock's queue has changed
            self._tasks.begin(ready.ask._replace(again=True))

    def _shares_record(self, command: TakeLock) -> bool:
        """Return True if an entry of a lock's queue can go with the next record, so that the lock takes no record but that of its turn."""
        instance = self.instance
        waits = instance.outcome is None and command.key in instance.pending
        return waits and command.key not in instance.locks.queued and not command.try_ and self._batcher.has_open_batch

    def _add_lock_entry(self, command: TakeLock) -> None:
        event = events.Queued(self.id, command.key, command.name, self._now_ms)
        self._batcher.add(self._builder.queued(event, lock_room.entry_of(command, self.id, self._tasks.age)))
        self.instance.deliver(event, event.at_ms)

    def _lock_entry_appended(self, event: events.Queued, seqnum: int) -> None:
        """Wait for the turn of an entry that shared a record."""
        self._host.locks.touched(event.name)
        if self.instance.locks.placed(event.key, seqnum) and event.key in self.instance.pending:
            self._wait_turn(event.key, event.name, seqnum)

    def _wait_turn(self, key: str, name: str, number: int) -> None:
        def on_turn(refused: Outcome | None) -> None:
            self._inbox.put(LockTurn(key, number) if refused is None else BodyEnded(key, refused))

        self._host.locks.wait(self.id, key, name, number, on_turn)

    # -- the code

    def _guarded(self, call: Callable[[], None]) -> None:
        """Make a call that runs the code. Block the workflow if it raises an error: other workflows go on."""
        if self._stopped:
            return
        try:
            call()
        except (NonDeterminism, WorkflowStuck) as error:
            self._block_when_recorded(error)
        except CodeStuck as stopped:
            assert self._host.watch is not None
            stack = self.instance.stack_of(stopped.stack)
            self._block_when_recorded(stuck(self.id, stack, self._host.watch.after_s))
        except Exception as error:  # noqa: BLE001 - a defect
            self._unexpected(error)

    def _set_up_instance(self) -> None:
        watch = self._host.watch
        guard = None if watch is None else lambda call: watch.run(call, self._report_stuck, self._report_still_stuck)
        self.instance.watch(guard, self._block_when_recorded)
        self.instance.log, self.instance.start = self._host.log, self._start
        self.instance.own_uniques = self._own_uniques

    def _report_stuck(self, stack: str) -> None:
        """Report that the code blocks the event loop. Called by the watching thread."""
        self._host.stuck(self.id, self.instance.stack_of(stack))

    def _report_still_stuck(self, stack: str) -> None:
        """Report that the code blocks the event loop although it was interrupted. Called by the watching thread."""
        self._host.still_stuck(self.id, self.claim, self.instance.stack_of(stack))

    def _block_when_recorded(self, error: Exception) -> None:
        """Block the workflow once everything that was delivered to its code is in the log: outcomes of steps are not lost by its error."""
        if self._replay is not None:
            self._block(error)
        elif not self._stopped and self._error is None:
            self._ending, self._error = True, error
            self._batcher.when_appended(_Block(error))
            self._inbox.wake()

    def _finish_steps(self, error: Exception) -> None:
        """Block the workflow once the steps that run have ended, which the next worker could not know, or after a while."""
        self._tasks.finish()
        self._finishing = self._loop.call_later(FINISH_S, self._block, error)

    def _record_ended_steps(self) -> None:
        """Record steps that ended, for the code that will run next; drop everything else, which the next worker delivers."""
        while self._inbox.items:
            item = self._inbox.items.popleft()
            if not isinstance(item, BodyEnded | StepWithdrawn):
                continue
            wait = self.instance.pending.get(item.key)
            if wait is None:  # the code did not wait for it any more
                continue
            if isinstance(item, StepWithdrawn):
                self._batcher.add(self._withdrawn(item, wait.name))
            elif item.unfit is None:
                self._batcher.add(BatchEntry(self._stepped(item, wait), delivers=True))

    def _block(self, error: BaseException | None) -> None:
        if self._stopped or error is None:
            return
        parts = self._called.running
        self._stop()
        self._host.blocked(self.id, error, self.claim, self.carried_ms)
        if parts:  # the next claim cancels them in any case, but that may take long
            some = parts[: transaction_children.CANCELLED_AT_ONCE]
            self._host.append_later(transaction_children.cancelling(self._builder.place.group, some))

    def _abandon(self, part: Attempted) -> None:
        """Cancel a part of a transaction before anything else that happens from here on."""
        self._batcher.add(self._builder.abandoned(part))
        self._inbox.wake()

    def _claim_moved(self, held: Mapping[str, int | None]) -> None:
        """Stop soon, since a record that expected this claim was refused; unless a checkpoint has replaced the claim meanwhile."""
        if held == self._builder.held:
            self._loop.call_soon(self.park)

    @property
    def _now_ms(self) -> int:
        """The time of a delivery made now."""
        return max(self.instance.now_ms, self._host.log.now_ms())

    def _deliver(self, item: Item) -> None:
        instance = self.instance
        if isinstance(item, Received):
            self._batcher.saw(item.seqnum)
            self._batcher.bytes += size_of(item.event) + AROUND_BYTES
            instance.deliver(item.event, item.time_ms)
            instance.reads.cursor = max(instance.reads.cursor, item.seqnum)
            return
        now_ms = self._now_ms
        assert not isinstance(item, ReadyTransaction | Ready)
        if isinstance(item, LockTurn):
            if (wait := instance.pending.get(item.key)) is not None:
                self._happened(events.Locked(self.id, item.key, wait.name, wait.digest, now_ms, item.number))
        elif isinstance(item, TimerDue):
            if self._timers.fires(item.command, instance.now_ms):
                self._happened(events.Fired(self.id, item.command.key, max(now_ms, item.command.due_ms)))
        elif (wait := instance.pending.get(item.key)) is None:
            return
        elif isinstance(item, StepWithdrawn):
            self._batcher.add(self._withdrawn(item, wait.name))
        elif item.unfit is not None:
            raise item.unfit
        else:
            self._happened(self._stepped(item, wait))

    def _withdrawn(self, item: StepWithdrawn, name: str) -> BatchEntry:
        return BatchEntry(events.Withdrawn(self.id, item.key, name), note=True)

    def _stepped(self, item: BodyEnded, wait: PendingCall) -> events.Stepped:
        how = (item.outcome, item.took_ms, item.attempts, item.part)
        return events.Stepped(self.id, item.key, wait.name, wait.digest, self._now_ms, *how)

    def _happened(self, event: events.Delivered) -> None:
        self._batcher.drop(event.key)
        self._called.abandoned.pop(event.key, None)
        self._batcher.add(BatchEntry(event, delivers=True))
        self.instance.deliver(event, event.at_ms)

    def _collect(self) -> None:
        """Take the effects and the commands of the code, and its outcome."""
        instance = self.instance
        if instance.fault is not None:
            self._block_when_recorded(instance.fault)
        if self._error is not None:
            return  # corrected code may have other effects
        while instance.effects:
            event, start = instance.effects.popleft()
            if isinstance(event, events.Emitted):
                self._topics[event.topic] = None
            self._batcher.add(self._builder.effect(event, start))
        while instance.commands:
            command = instance.commands.popleft()
            if isinstance(command, TakeLock) and self._shares_record(command):
                self._add_lock_entry(command)
            elif isinstance(command, Body):
                self._begin_after_record(command)
            elif isinstance(command, CancelCommand):
                self._tasks.stop(command.key)
            elif isinstance(command, SetTimer):
                self._set_timer(command)
            else:
                self._timers.unset(command.key)
                self._batcher.drop(command.key)
        if instance.outcome is not None and not self._ending:
            self._end(instance.outcome)

    def _begin_after_record(self, command: Body) -> None:
        if command.key not in self.instance.pending:
            return
        entry = self.instance.locks.queued.get(command.key)
        if entry is not None:  # it is in the lock's queue since before a takeover
            self._wait_turn(command.key, entry.name, entry.number)
            return
        if isinstance(command, RunStep) and command.key in self.instance.begun:
            error = StepInterrupted(
                f"step {command.step.name!r} was begun, and it is not known how it ended: look whether it happened. If it did not, "
                f"`boki flow fork {self.id}` does the step again; or catch StepInterrupted in the workflow"
            )
            self._inbox.put(BodyEnded(command.key, failed(error)))
            return
        if isinstance(command, RunStep) and command.key in self.instance.withdrawn:
            again = events.Withdrawn(self.id, command.key, command.step.name, again=True)
            self._batcher.add(BatchEntry(again, begins=True))
        self._batcher.when_appended(command)

    def _set_timer(self, command: SetTimer) -> None:
        if command.key in self.instance.timers:
            self._batcher.add(BatchEntry(events.Sleeping(self.id, command.key, command.due_ms), lazy=True))
            self._timers.set(command, self.instance.now_ms)

    def _end(self, outcome: Outcome) -> None:
        self._ending, self._outcome = True, None
        if self._called.undecided:
            self._outcome = outcome
            return
        last, more_bytes = last_event(
            *(self.instance, self._start, outcome, self._topics, self.carried_ms, self._batcher.bytes),
            now_ms=self._now_ms,
        )
        if isinstance(last, events.Restarted):
            for entry in self._builder.restart(last):
                self._batcher.add(entry)
        else:
            self._batcher.add(BatchEntry(last, more_bytes=more_bytes))
        self._batcher.when_appended(last)

    def _restart(self, restarted: events.Restarted, seqnum: int, seen: int) -> None:
        """Begin the next run of the workflow, which is in the log."""
        self._tasks.stop_all()
        self._timers.stop()
        self.instance.drop()
        self.instance = Instance(restarted.started, self.instance.workflow, restarted)
        self._set_up_instance()
        self._ending, self._batcher.bytes = False, size_of(restarted)
        self.instance.begin()
        self._collect()
        self._tasks.later(history_checkpoint.trim_history_before(self._host.log, self._builder.place, seqnum, seen))
        self._inbox.wake()


async def read_all(reads: Sequence[SnapshotRead], place: int) -> list[Any]:
    """Read what the code waits for, as of a place of the log.

    The values are in no record, so each replay has to read the same. An error that a later replay may not meet is not an answer: the
    read is repeated until it succeeds.

    Raises:
        CannotLook: an error that is not retryable.
    """
    return list(await asyncio.gather(*(_read(one, place) for one in reads)))


async def _read(one: SnapshotRead, place: int) -> Any:
    try:
        return await retried(lambda: one.read(place))
    except BokiError as error:
        raise CannotLook(f"what a workflow looks at cannot be read: {type(error).__name__}: {error}") from error
