"""The running code of one workflow: events are delivered to it, and it returns effects and commands. It does not know the log or tasks.

    instance.begin(); instance.replay(delivered)
    instance.deliver(event, time_ms)              # then `effects`, `commands` and `outcome` have what the code did

All three run the code, so they are called from a callback of the outer loop, never from a task (`flow_loop`).

- A replay compares the effects of the code with its history: names, digests, order.
- Results that are delivered live are the same objects that a replay would deliver (`outcomes`).
- The result of a snapshot read (`look`) is delivered before anything else, as of `reads.cursor`. So a replay reads as of the same position,
  at the same point of the history.

- Each value of a signal is received once. Values and waiting tasks of a topic are served in order of arrival.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

import xxhash

from boki_common.errors import InvalidArgument
from bokiflow.cancellation import RestartRequested, WorkflowCancelled, restart_of
from bokiflow.errors import SET_UP, NonDeterminism
from bokiflow.model import flow_events as events
from bokiflow.model.delivery_order import OrderedEvent, Own
from bokiflow.model.flow_events import OWN_UNIQUES, Begun, Effect, EnclosingTransaction, Incoming, Restarted, Started
from bokiflow.model.outcomes import (
    CANCELLED_OUTCOME,
    THE_ARGUMENTS,
    Names,
    Outcome,
    as_json,
    cancellation_text,
    copied,
    digest,
    digest_of_call,
    error_of,
    failed,
    is_rebuilt,
    lost_class,
    missing_class,
    unfit_value,
)
from bokiflow.model.record_batcher import EVENT_BYTES, PASS_ADDRESS, SEND_ADDRESS, check_size, size_of
from bokiflow.runtime.calls import AnyStep, Signature, Workflow, names_of
from bokiflow.runtime.commands import (
    CancelCommand,
    CancelTimer,
    ChildStart,
    Command,
    LockEntries,
    LockEntry,
    RunStep,
    SetTimer,
    SnapshotRead,
    SnapshotReads,
    TakeLock,
)
from bokiflow.runtime.flow_loop import FlowLoop, FlowTask
from bokiflow.runtime.transactional import RunTransaction, TransactionalStore, TransactionParts, check_store
from bokilib.append.log import Log
from bokilib.errors import NotEncodable
from bokilib.records.codec import Json


class SignalQueue:
    """The signals of one workflow.

    Attributes:
        values: values that were not received.
        receivers: futures of tasks that wait; some may be cancelled.
    """

    def __init__(self, unreceived: Iterable[tuple[str, Any]] = ()) -> None:
        """`unreceived`: (topic, value) pairs that the run before a restart did not receive."""
        self.values: Final[defaultdict[str, deque[Any]]] = defaultdict(deque)
        self.receivers: Final[dict[str, deque[asyncio.Future[Any]]]] = {}
        for topic, value in unreceived:
            self.values[topic].append(value)

    @property
    def topics(self) -> list[str]:
        """The topics that a task waits for."""
        return [topic for topic, waiting in self.receivers.items() if waiting]

    @property
    def unreceived(self) -> list[tuple[str, Any]]:
        """The (topic, value) pairs that were not received."""
        return [(topic, value) for topic, values in self.values.items() for value in values]

    def deliver(self, topic: str, value: Any) -> asyncio.Future[Any] | None:
        """Return the future that gets a value; None if no task waits, then the value is kept."""
        receivers = self.receivers.get(topic)
        while receivers:
            receiver = receivers.popleft()
            if not receiver.done():
                return receiver
        self.values[topic].append(value)
        return None

    async def receive(self, topic: str, loop: asyncio.AbstractEventLoop) -> Any:
        """Wait for the next value of a topic."""
        values = self.values.get(topic)
        if values:
            return values.popleft()
        receiver: asyncio.Future[Any] = loop.create_future()
        self.receivers.setdefault(topic, deque()).append(receiver)
        try:
            return await receiver
        except asyncio.CancelledError:
            if receiver.done() and not receiver.cancelled():  # the value came at the moment of the cancellation
                self.values[topic].appendleft(receiver.result())
            raise


_UNIT: Final = 2.0**-53
MESSAGE_CHARS: Final = 200
WAITS_SHOWN: Final = 6
"""Waits that the message of a NonDeterminism lists."""
RESTART_BYTES: Final = EVENT_BYTES - 32_768
"""Bytes of arguments in the record of a restart; the rest is for its other fields."""
LEFT_TASK: Final = "restart in a task that no code awaits"
"""Patch by which such a restart ends the run. For older programs it had no effect."""


class PendingCall(NamedTuple):
    """A step, transaction, child or lock that the code waits for. `names`: the global names of its function."""

    future: asyncio.Future[Any]
    name: str
    digest: str
    names: Names
    child: str = ""
    lock: bool = False

    @property
    def kind(self) -> str:
        return "child" if self.child else "lock" if self.lock else "step"


class Instance:
    """The code of one run of a workflow; see the module.

    Attributes:
        started: the record that began it.
        run: the number of restarts so far.
        effects, commands: queues that the executor empties, oldest first.
        outcome: how the run ended; None while it runs.
        fault: the set-up error of the program that ended the run. Effects since the last delivery are not recorded then.
        next: the arguments of the next run, after `restart`.
        reads: snapshot reads, which are answered before anything else is delivered.
        is_replayed: events of the history are being delivered.
        log: the log of the worker that runs it.
        start: the seqnum of its beginning; 0 if no worker runs it.
        own_uniques: as the claim has it (`flow_events.Started`).
        begun: keys of steps that run at most once and whose begin is recorded.
        withdrawn: keys of such steps whose body did not begin after all.
    """

    def __init__(self, started: Started, workflow: Workflow[..., Any], restarted: Restarted | None = None) -> None:
        """`restarted`: the record of the newest restart, which has the state that this run takes over."""
        self.id: Final = started.id
        self.run: Final = 0 if restarted is None else restarted.run
        self.started: Final = started
        self.workflow: Final = workflow
        self._names: Final = names_of(workflow.function)
        self.effects: deque[tuple[Effect, ChildStart]] = deque()
        self.commands: deque[Command] = deque()
        self.reads: Final = SnapshotReads(0 if restarted is None else restarted.cursor or restarted.start)
        self.outcome: Outcome | None = None
        self.fault: Exception | None = None
        self.log: Log | None = None
        self.start = 0
        self.own_uniques = started.own_uniques
        self.begun: set[str] = set()
        self.withdrawn: set[str] = set()
        self.pending: dict[str, PendingCall] = {}
        self.locks: Final = LockEntries(child=bool(started.parent))
        self.parts: Final = TransactionParts(started.within)
        self.next: Json = None
        self._restarts: list[RestartRequested] = []
        """Restarts that the code has called for while its root task ran."""
        self._restart: RestartRequested | None = None
        """That of a task which no code awaits, for which the root task is cancelled."""
        now_ms = started.at_ms if restarted is None else restarted.at_ms
        self._loop: Final = FlowLoop(self, self, now_ms, run=self.run)  # type: ignore[abstract]  # the rest is set at run time
        self._root: FlowTask[Any] | None = None
        self._on_misuse: Callable[[Exception], None] | None = None
        self._signals: Final = SignalQueue(() if restarted is None else restarted.unreceived)
        self._inherited: dict[str, str] = {}
        """Children of a fork's origin, by the keys of their calls."""
        self._name = started.names[0][0] if started.names else self.id
        """The id from which `unique` is derived: for a fork that of its origin, up to its first own delivery."""
        self._patches: dict[str, bool | None] = {}
        """Whether a patch took the new code; None if the history says so and the code did not reach it yet."""
        self._unmarked: Final[list[str]] = []
        """Deprecated patches that the code passed in its history, which has no mark of them."""
        self._replaying = False
        self.is_replayed = False

    @property
    def now_ms(self) -> int:
        """The time that the code sees."""
        return self._loop.now_ms

    @property
    def waits(self) -> list[str]:
        """Descriptions of all that the code waits for."""
        steps = [f"{wait.kind} {wait.name!r} ({key})" for key, wait in self.pending.items()]
        signals = [f"signal {topic!r}" for topic in self._signals.topics]
        return [*steps, *(f"timer ({key})" for key in self._loop.timers), *signals]

    @property
    def timers(self) -> list[str]:
        """The keys of timers that the code waits for."""
        return self._loop.timers

    def watch(self, guard: Callable[[Callable[[], None]], None] | None, on_misuse: Callable[[Exception], None]) -> None:
        """Set how the code is watched.

        `guard` runs a call of the code, and interrupts it if it takes too long; `on_misuse` is called if the code would wait without end.
        """
        self._loop.guard = guard
        self._on_misuse = on_misuse

    def stack_of(self, stopped: str) -> str:
        """Return the stack of interrupted code. The definition of the workflow is added if none of its code is in the stack."""
        stack = self._loop.stack_of(stopped)
        code = getattr(inspect.unwrap(self.workflow.function), "__code__", None)
        if code is None or f'"{code.co_filename}"' in stack:
            return stack
        return stack + "".join(traceback.format_list([(code.co_filename, code.co_firstlineno, code.co_name, None)]))

    def misused(self, error: Exception) -> None:
        if self._on_misuse is not None and self.outcome is None:
            self._on_misuse(error)

    # -- for the executor

    def begin(self, *, replaying: bool = False) -> None:
        """Run the code until it waits. Raises NonDeterminism."""
        self._replaying = replaying
        self._run(self._start)

    def _start(self) -> None:
        self._root = self._loop.start(self._main())

    async def _main(self) -> Any:
        try:
            args, options = self.workflow.signature.decode(self.started.args)
        except Exception as fault:
            raise self._unfit(fault, THE_ARGUMENTS) from fault
        try:
            return await self.workflow.function(*args, **options)
        except asyncio.CancelledError as error:
            root = asyncio.current_task()
            if isinstance(error, WorkflowCancelled) or root is None or root.cancelling():
                raise
            raise RuntimeError(
                f"workflow {self.workflow.name!r} raised CancelledError, and nobody had cancelled it"
            ) from error

    def replay(self, delivered: Iterable[OrderedEvent], start: int = 0) -> None:
        """Deliver a history where snapshot reads cannot be answered.

        Args:
            start: the seqnum at which the workflow began; older events were delivered to the origin of a fork.

        Raises:
            NonDeterminism: the code does not do what the history has.
            InvalidArgument: the code makes a snapshot read.
        """
        for _ in self.replaying(delivered, start):
            raise InvalidArgument(
                f"workflow {self.id!r} looks at rows, and their values are not recorded: replay it where its log and its tables are",
                id=self.id,
            )

    def replaying(self, delivered: Iterable[OrderedEvent], start: int = 0) -> Iterator[None]:
        """Deliver a history. At each step of the generator the caller answers all `reads.waiting` as of `reads.cursor`."""
        ordered = list(delivered)
        self._inherited = {
            one.event.key: one.event.child
            for one in ordered
            if one.seqnum < start and isinstance(one.event, events.Invoked)
        }
        self._patches = {one.event.name: None for one in ordered if isinstance(one.event, events.Patched)}
        last = max(
            (at for at, one in enumerate(ordered) if isinstance(one.event, events.DELIVERED + events.EFFECTS)),
            default=-1,
        )
        cursors = self.started.cursors
        self.reads.cursor = cursors[0] if cursors else self.reads.cursor or start
        self._replaying = self.is_replayed = last >= 0
        self.begin(replaying=last >= 0)
        while self.reads.waiting:
            yield
        place = -1  # counts as forks do, without events that older programs skip
        for at, one in enumerate(ordered):
            place += not isinstance(one.event, events.PASSED)
            if at >= last:
                self._replaying = False
            self.is_replayed = at <= last
            if isinstance(one.event, events.EFFECTS):
                self._match(one.event)
            elif isinstance(one.event, events.Withdrawn):
                self._withdraw(one.event)
            elif not isinstance(one.event, events.NOTES):
                self._name = next((name for name, upto in self.started.names if place < upto), self.id)
                self._deliver(one.event, one.time_ms)
                moved = cursors[place + 1] if place + 1 < len(cursors) else one.seqnum
                self.reads.cursor = max(self.reads.cursor, moved)
                while self.reads.waiting:
                    yield
        self._replaying = self.is_replayed = False

    def answer(self, read: SnapshotRead, value: Any) -> None:
        """Deliver the result of the oldest snapshot read. Raises NonDeterminism."""
        assert self.reads.waiting and self.reads.waiting[0] is read, "snapshot reads are answered in order"
        self.reads.waiting.popleft()
        if not read.future.done():
            self._run(lambda: read.future.set_result(value))

    def _match(self, recorded: Effect) -> None:
        """Compare the oldest effect with the next one of the history. Raises NonDeterminism."""
        if isinstance(recorded, events.Patched):
            if self._pass_patch(recorded):
                return
            raise self._mismatch(_describe(recorded), self._waiting_for(recorded.key))
        if not self.effects:
            raise self._mismatch(_describe(recorded), self._waiting_for(recorded.key))
        made, _ = self.effects.popleft()
        if made != recorded:
            raise self._mismatch(_describe(recorded), _describe(made))
        if isinstance(recorded, Begun):
            self.begun.add(recorded.key)

    def _pass_patch(self, recorded: events.Patched) -> bool:
        """Remove the effect of a patch. It need not be the oldest, since a drain may hold back earlier ones (`record_batcher`).

        Return False if the code does not come to the patch, and has to, since it is not deprecated.
        """
        for one in self.effects:
            if isinstance(one[0], events.Patched) and one[0].name == recorded.name:
                self.effects.remove(one)
                return True
        return recorded.deprecated or recorded.name == OWN_UNIQUES

    def _withdraw(self, noted: events.Withdrawn) -> None:
        now, before = (self.begun, self.withdrawn) if noted.again else (self.withdrawn, self.begun)
        before.discard(noted.key)
        now.add(noted.key)

    def deliver(self, event: Own | Incoming, time_ms: int) -> None:
        """Deliver an event, and run the code until it waits.

        Args:
            time_ms: the time of the record, for events of other writers; own events have a time of their own.

        Raises:
            NonDeterminism: the code does not wait for the event.
        """
        self._name = self.id
        self._deliver(event, time_ms)

    def _deliver(self, event: Own | Incoming, time_ms: int) -> None:
        if isinstance(event, events.Stepped | events.Transacted):
            self._advance_time(event.at_ms)
            self._deliver_result(event)
        elif isinstance(event, events.Queued | events.Locked):
            self._advance_time(event.at_ms)
            self._deliver_lock(event)
        elif isinstance(event, events.Fired):
            self._advance_time(event.at_ms)
            if event.key not in self._loop.timers:
                raise self._mismatch(f"a timer ({event.key})", self._waiting_for(event.key))
            self._run(lambda: self._loop.fire(event.key))
        else:
            self._advance_time(time_ms)
            self._deliver_incoming(event)

    def _advance_time(self, time_ms: int) -> None:
        self._loop.now_ms = max(self._loop.now_ms, time_ms)

    def _deliver_result(self, event: events.Stepped | events.Transacted) -> None:
        wait = self.pending.get(event.key)
        expected = f"step {event.name!r} ({event.key})"
        if wait is None:
            raise self._mismatch(expected, self._waiting_for(event.key))
        if wait.name != event.name:
            raise self._mismatch(expected, self._at_place(f"step {wait.name!r}", event.key))
        if wait.digest != event.digest:
            found = self._at_place(f"the same with arguments {wait.digest}", event.key)
            raise self._mismatch(f"{expected} with arguments {event.digest}", found)
        if isinstance(event, events.Stepped) and event.part is not None:
            self.parts.add([event.part])
        self._resolve(event.key, wait, event.outcome)

    def _deliver_lock(self, event: events.Queued | events.Locked) -> None:
        wait = self.pending.get(event.key)
        if wait is None or not wait.lock or wait.name != event.name:
            raise self._mismatch(f"lock {event.name!r} ({event.key})", self._waiting_for(event.key))
        entry = self.locks.queued[event.key] = LockEntry(event.key, event.name, event.number)
        if isinstance(event, events.Locked):
            self._resolve(event.key, wait, Outcome(entry.number))

    def _deliver_incoming(self, event: Incoming | Own) -> None:
        if isinstance(event, events.ChildEnded):
            wait = self.pending.get(event.key)
            if wait is not None and wait.child == event.child:
                self.parts.add(event.parts)
                self._resolve(event.key, wait, event.outcome)
        elif isinstance(event, events.Signalled):
            if self.outcome is not None:  # delivered by a replay after the end of the run, for the next one
                self._signals.values[event.topic].append(event.value)
                return
            receiver = self._signals.deliver(event.topic, event.value)
            if receiver is not None:
                self._run(partial(receiver.set_result, event.value))
        elif isinstance(event, events.Cancelled):
            root = self._root
            if root is not None:
                self._restart = None
                self._run(lambda: root.cancel(event.reason or None))

    def _resolve(self, key: str, wait: PendingCall, outcome: Outcome) -> None:
        """Deliver an outcome to a wait. Raises NonDeterminism if the program lacks the class of the error, which the code may catch."""
        future, error = wait.future, None if outcome.cancelled else outcome.error
        if future.done() or self.outcome is not None:
            return
        lost = None if error is None else missing_class(error, *self._places(wait))
        if lost is not None:
            what = f"{wait.kind} {wait.name!r} ({key})"
            raise lost_class(lost, what, self.id, self.workflow.name, *self._places(wait))
        self._run(lambda: future.set_result(outcome))

    def _places(self, wait: PendingCall) -> tuple[Names, Names]:
        """Return the names in which a class of errors is looked up: those of its function, and of the workflow."""
        return wait.names, self._names

    def _run(self, call: Any) -> None:
        if self.outcome is not None:
            return
        try:
            self._loop.run(call)
            self._restart_for_task()
        except NonDeterminism as error:
            if self.is_replayed:
                raise
            self.fault, self.outcome = error, failed(error)  # the delivery is recorded, so no step runs again
            return
        root = self._root
        assert root is not None
        if not root.done():
            return
        self.outcome = self._ended(root)
        self.reads.waiting.clear()
        for key in list(self.pending):
            self.commands.append(CancelCommand(key))
        for key in list(self.locks.queued):
            self.unlock(key)

    def _restart_for_task(self) -> None:
        """Cancel the root task if another task, which no code awaits, has called for a restart: once the root ends, the run does."""
        found = next((one for error in self._loop.unnoticed() if (one := restart_of(error)) in self._restarts), None)
        if found is None or self._restart is not None or not self.patched(LEFT_TASK, deprecated=True):
            return
        self._restart, root = found, self._root
        if root is not None and not root.done():
            self._loop.run(lambda: root.cancel(str(found)))

    def _ended(self, root: FlowTask[Any]) -> Outcome:
        error = None if root.cancelled() else root.exception()
        restart = restart_of(error) if error is not None else self._restart
        if restart is not None:
            self.next = self.workflow.signature.encode(restart.run_args, restart.options)
            return Outcome()
        if root.cancelled():
            return CANCELLED_OUTCOME
        self.fault = _fault_of(error)
        if error is not None:
            return failed(error, self._names)
        try:
            return Outcome(self.workflow.signature.stored(root.result()))
        except NotEncodable as fault:
            return failed(NotEncodable(f"what workflow {self.workflow.name!r} returned {fault}"))

    def drop(self) -> None:
        """Close the code where it is."""
        self._loop.drop()

    def _waiting_for(self, key: str) -> str:
        """Describe what the code waits for instead of a key of its history, with lines of its source."""
        if self.outcome is not None:
            error = self.outcome.error
            return "code that has ended" + (
                "" if error is None else f" with {error.type}: {error.message[:MESSAGE_CHARS]}"
            )
        waits = [(at, f"{wait.kind} {wait.name!r}") for at, wait in self.pending.items()]
        waits += [(at, "timer") for at in self._loop.timers]
        waits.sort(key=lambda one: one[0] != key)
        words = [self._at_place(what, at) for at, what in waits[:WAITS_SHOWN]]
        words += [f"{len(waits) - WAITS_SHOWN} more"] if len(waits) > WAITS_SHOWN else []
        words += [f"signal {topic!r}" for topic in self._signals.topics[:WAITS_SHOWN]]
        return f"code that waits for {', '.join(words) or 'nothing'}"

    def _at_place(self, what: str, key: str) -> str:
        place = self._loop.place_of(key)
        return f"{what} ({key}), {place}" if place else f"{what} ({key})"

    def _mismatch(self, expected: str, found: str) -> NonDeterminism:
        remedy = "bring back the code that began it, or tell the versions apart with bokiflow.patched(...)"
        if self._unmarked:
            calls = ", ".join(f"`if bokiflow.patched({name!r})`" for name in self._unmarked)
            remedy = (
                f"it may be on a way that this code no longer has: bring back {calls} with both ways until it has ended"
            )
        return NonDeterminism(
            f"workflow {self.id!r} ({self.workflow.name}) does not do what its history says: expected {expected}, found {found}; {remedy}",
            id=self.id,
            expected=expected,
            found=found,
        )

    # -- Timers of the loop

    def set_timer(self, key: str, due_ms: int) -> None:
        self.commands.append(SetTimer(key, due_ms))

    def cancel_timer(self, key: str) -> None:
        self.commands.append(CancelTimer(key))

    # -- calls of the code (`calls.Context`, `in_workflow`)

    async def run_step(self, step: AnyStep, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        key = self._loop.next_key()
        if step.how.at_most_once:
            self.effects.append((Begun(self.id, key, step.name), ChildStart()))
        self.commands.append(RunStep(key, step, copied(args), copied(options), self._names))
        wait = PendingCall(self._loop.create_future(), step.name, digest_of_call(args, options), step.names)
        outcome = await self._wait(key, wait)
        return self._result(step.signature, key, wait, outcome)

    async def run_child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        stored = _bounded_json(
            workflow.signature.checked(args, options), f"arguments of child workflow {workflow.name!r}", PASS_ADDRESS
        )
        key = self._loop.next_key()
        child = self._inherited.get(key, f"{self.id}/{key}")
        made = events.Invoked(self.id, key, child, workflow.name, digest(stored))
        within = self._within()
        self.effects.append((made, ChildStart(workflow, stored, within=within)))
        wait = PendingCall(self._loop.create_future(), workflow.name, made.digest, names_of(workflow.function), child)
        try:
            outcome = await self._wait(key, wait, part=within is not None)
        except asyncio.CancelledError:
            if not wait.future.done() or wait.future.cancelled():
                notice = events.Cancelled(child, "its parent does not wait for it any more")
                self.effects.append((events.Sent(self.id, f"{key}!", child, ""), ChildStart(notice=notice)))
            raise
        return self._result(workflow.signature, key, wait, outcome)

    def launch(
        self, workflow: Workflow[..., Any], args: Json, id: str, due_ms: int, attributes: Mapping[str, str]
    ) -> None:
        made = events.Invoked(self.id, self._loop.next_key(), id, workflow.name, digest(args))
        stored = _bounded_json(args, f"arguments of workflow {workflow.name!r}", PASS_ADDRESS)
        self.effects.append((made, ChildStart(workflow, stored, detached=True, due_ms=due_ms, attributes=attributes)))

    def _within(self) -> EnclosingTransaction | None:
        """Return what the next part of the enclosing transaction begins with. Raises InvalidArgument, AtomicTooLarge."""
        within = self.parts.next()
        if within is not None:
            what = "reads and writes of a transaction across workflows"
            check_size(size_of(within), what, "read and write less in it before it calls a workflow")
        return within

    async def _wait(self, key: str, wait: PendingCall, *, part: bool = False) -> Outcome:
        self.pending[key] = wait
        self.parts.under_way |= part
        try:
            outcome: Outcome = await wait.future
        except asyncio.CancelledError:
            if not wait.child:
                self.commands.append(CancelCommand(key))
            raise
        finally:
            self.pending.pop(key, None)
            self.parts.under_way &= not part
        if outcome.cancelled:
            raise WorkflowCancelled(cancellation_text(wait.child or wait.name, outcome))
        if outcome.error is not None:
            raise error_of(outcome.error, *self._places(wait))
        return outcome

    def _result(self, signature: Signature, key: str, wait: PendingCall, outcome: Outcome) -> Any:
        """Return a result as the type that this program names. Raises NonDeterminism if it does not fit."""
        try:
            return signature.result(outcome.value)
        except Exception as fault:
            raise self._unfit(fault, f"the result of {wait.kind} {wait.name!r} ({key})") from fault

    def _unfit(self, fault: Exception, what: str) -> NonDeterminism:
        """Block the workflow even if its code catches the error: another version of the code may read the value."""
        return self._loop.fail(unfit_value(fault, what, self.id, self.workflow.name))

    async def transact(self, store: TransactionalStore[Any], body: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if not callable(body):
            raise InvalidArgument(
                f"expected a function as the body of a transaction, found {body!r:.80}: bokiflow.transact(store, body, *args)",
                found=body,
            )
        key = self._loop.next_key()
        name = getattr(body, "__name__", "transaction")
        check_store(store, self.log, shared=self.started.within is not None)
        within = self._within()
        places = names_of(body), self._names
        given, named = copied(args), copied(body.keywords) if isinstance(body, partial) else {}
        signature = Signature(body)

        async def run(tx: Any) -> Json:
            return signature.stored(await body(tx, *copied(given), **copied(named)))

        self.commands.append(RunTransaction(key, name, store, run, within, places=places))
        wait = PendingCall(self._loop.create_future(), name, digest_of_call(args, {}), places[0])
        outcome = await self._wait(key, wait, part=within is not None)
        return self._result(signature, key, wait, outcome)

    async def take_lock(self, name: str, shared: bool, try_: bool, ordered: bool) -> LockEntry:
        """Acquire a lock; see `locks.lock`. `unlock` of the entry's key must follow."""
        key = self._loop.next_key()
        await self.locks.turn()
        try:
            self.commands.append(TakeLock(key, name, shared, try_, ordered or self.locks.waits_for_any))
            future: asyncio.Future[Any] = self._loop.create_future()
            wait = PendingCall(future, name, digest_of_call((shared, try_), {}), self._names, lock=True)
            outcome = await self._wait(key, wait)
        except BaseException:
            self.unlock(key)
            raise
        finally:
            self.locks.done()
        return LockEntry(key, name, outcome.value)

    def unlock(self, key: str) -> None:
        """Release a lock, or stop waiting for it; do nothing if it has no lock queue entry."""
        entry = self.locks.queued.pop(key, None)
        if entry is not None:
            self.effects.append((events.Unlocked(self.id, key, entry.name), ChildStart()))

    async def look(self, read: Callable[[int], Awaitable[Any]]) -> Any:
        """Return the result of a read as of the newest delivered position: not recorded, and the same in each replay.

        Args:
            read: returns the same for a position each time; an error of it that is not retryable blocks the workflow.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self.reads.waiting.append(SnapshotRead(future, read))
        return await future

    async def receive(self, topic: str) -> Any:
        return await self._signals.receive(topic, self._loop)

    def emit(self, topic: str, value: object) -> None:
        key = self._loop.next_key()
        stored = _bounded_json(value, f"a value emitted under {topic!r}", "store it elsewhere, and emit its address")
        made = events.Emitted(self.id, key, topic, stored)
        self.effects.append((made, ChildStart()))

    def send(self, id: str, topic: str, value: object) -> None:
        key = self._loop.next_key()
        stored = _bounded_json(value, f"signal {topic!r} to workflow {id!r}", SEND_ADDRESS)
        notice = events.Signalled(id, topic, stored, f"{self.id}/{key}")
        self.effects.append((events.Sent(self.id, key, id, topic), ChildStart(notice=notice)))

    def restart(self, args: tuple[Any, ...], options: dict[str, Any]) -> NoReturn:
        if self.started.within is not None:
            raise InvalidArgument("expected a workflow of its own, found a part of a transaction, which cannot restart")
        stored = self.workflow.signature.checked(args, options)
        check_size(
            size_of(stored), f"arguments of a restart of workflow {self.workflow.name!r}", PASS_ADDRESS, RESTART_BYTES
        )
        request = RestartRequested(args, options)
        if self._root is None or not self._root.done():
            self._restarts.append(request)
        raise request

    @property
    def unreceived(self) -> list[tuple[str, Any]]:
        """The (topic, value) pairs of signals that were not received."""
        return self._signals.unreceived

    def patched(self, name: str, *, deprecated: bool = False) -> bool:
        known = self._patches.get(name)
        if known is None:
            known = self._patches[name] = not self._replaying or name in self._patches
            if known:
                self.effects.append((events.Patched(self.id, name, name, deprecated), ChildStart()))
        return known

    def deprecate_patch(self, name: str) -> None:
        if self._replaying and name not in self._patches:
            # Code without the call began it, or it took the old way: then its next record differs from what this code does.
            self._patches[name] = True
            self._unmarked.append(name)
        elif not self.patched(name, deprecated=True):
            raise self._loop.fail(
                NonDeterminism(
                    f"workflow {self.id!r} ({self.workflow.name}) takes the old way at the patch {name!r}: call `patched` or "
                    "`deprecate_patch` for one name, not both",
                    id=self.id,
                    expected=f"the way before the patch {name!r}",
                    found=f"bokiflow.deprecate_patch({name!r})",
                )
            )

    def unique(self) -> str:
        key = self._loop.next_unique_key() if self._counts_uniques() else self._loop.next_key()
        return self._derived(key)

    def change_name(self) -> tuple[int, str]:
        """Return a time and a unique number that name the next change of a row: the same whatever steps a deploy puts before it.

        A change of an older program goes by the time of its call, and is counted with the calls before it.
        """
        if self._counts_uniques():
            return self.started.at_ms, self._derived(self._loop.next_change_key())
        return self.now_ms, self._derived(self._loop.next_key())

    def _derived(self, key: str) -> str:
        return xxhash.xxh3_128_hexdigest(f"{self._name}/{self.started.at_ms}/{key}".encode())

    def _counts_uniques(self) -> bool:
        """Return whether unique numbers have counters of their own; not if an older program may have given some away."""
        if not self.own_uniques:
            self._patches.setdefault(OWN_UNIQUES, False)
        return self.patched(OWN_UNIQUES)

    def random(self) -> float:
        return (int(self.unique()[:16], 16) >> 11) * _UNIT


def _fault_of(error: BaseException | None) -> Exception | None:
    """Return the first set-up error of the program in an error of the code; errors of steps and children are data."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _fault_of(one)) is not None), None)
    return error if isinstance(error, SET_UP) and not is_rebuilt(error) else None


def _bounded_json(value: object, what: str, instead: str) -> Json:
    made = as_json(value)
    check_size(size_of(made), what, instead)
    return made


def _describe(event: Effect) -> str:
    fields = ", ".join(f"{name}={getattr(event, name)!r}" for name in event.__struct_fields__ if name != "id")
    return f"{type(event).__name__}({fields})"
