"""The worker: it owns partitions of its group, runs workflows that are started there, and takes over those of dead workers.

    async with Worker(app, client.book("shop"), name="host-7") as worker:
        handle = await worker.start(checkout.call(order), id="order-7")

- Liveness is judged by observed silence; safety comes from fences. A worker that starts again under its name resumes its work at once.
- If another worker claims a partition, workflows of it that run here stay here: the new owner claims them only when this worker dies. So
  this worker also resumes its own parked workflows there, by claims that expect its last ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar, overload

import boki
from boki_common.errors import BokiError, ClosedError
from boki_common.logs import NAMED, get_logger
from boki_common.metrics import Metrics
from boki_common.runtime import confined
from boki_common.runtime.bodies import ThreadBodies
from boki_common.runtime.code_watch import CodeWatch
from boki_common.runtime.ports import Bodies
from bokiflow.client.app import App
from bokiflow.client.flow import Flow
from bokiflow.client.handles import Handle
from bokiflow.client.schedules import Plan
from bokiflow.execute.body import CancelledBodies, FailedAttempts
from bokiflow.execute.executor import Executor
from bokiflow.execute.traces import Spans, Tracing
from bokiflow.history import inspection
from bokiflow.locks.lock_room import LockRoom
from bokiflow.model.delivery_order import RecordedEvents
from bokiflow.model.flow_events import (
    INCOMING,
    PICKER,
    Cancelled,
    Ended,
    Incoming,
    Leaving,
    Resumed,
    Started,
    Terminated,
)
from bokiflow.model.history_fold import History
from bokiflow.model.stacks import stuck, users_stack
from bokiflow.retention.collect_rules import AGES, HISTORIES, Histories
from bokiflow.retention.collector import Collected, Collector
from bokiflow.runtime.calls import Call, Workflow
from bokiflow.worker.blocked_workflows import BlockedWorkflows
from bokiflow.worker.draining import Draining
from bokiflow.worker.fences import FenceWatch
from bokiflow.worker.partitions import partitions_of, still_runs, to_claim, unfinished
from bokiflow.worker.takeover import PassedMessages, Takeover
from bokiflow.worker.upkeep import Upkeep, WorkerView
from bokilib.append.log import Log, Read, Tokens
from bokilib.follow import lease_rules
from bokilib.follow.follower import Follower
from bokilib.own_loop import check_here
from bokilib.partitions.peers import Peers
from bokilib.partitions.rounds import Rounds
from bokilib.pauses import retried
from bokilib.ports import BookPort, PayloadHook, TicketPort
from bokilib.records import tags
from bokilib.records.arguments import LEASE_MOST_S, check_lease, check_member_name, check_seconds, check_whole
from bokilib.records.codec import Json
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import RETENTION_MS, Ages
from bokilib.stacks import described, stack_of

R = TypeVar("R")

COLLECT_EVERY_S: Final = 60.0
FINISH_S: Final = 30.0
STUCK_AFTER_S: Final = 5.0
"""A third of the default lease, so that a stuck workflow is blocked in the log before other workers take this one for dead."""

FAILED_ALONE: Final = "workflow not read: an error of this program or of its payload hook; retried later"
FAILED: Final = "worker read or append failed: retried later"
ADVICE: Final = "use asyncio.run_coroutine_threadsafe(..., loop) with the worker's loop"
UNREADABLE: Final = (
    "partitions have records that this program cannot open: workflows that they start wait for a program that can"
)
UNREADABLE_STATE: Final = "workflows whose state this program cannot read: they wait for a program that can"
STUCK: Final = "workflow stuck: its code keeps the event loop from running; interrupted once its current call can be"

log = get_logger(__name__)


class Worker:
    """A member of a group that runs its workflows; see the module.

    Attributes:
        flow: the client for workflows of the book.
        finishing: it is being drained, and claims nothing.
        locks: the locks of this process.
        failed_attempts: the log lines of steps that are retried.
        cancelled: the bodies of steps that were cancelled and have not ended.
    """

    _lease_most_s: ClassVar[float] = LEASE_MOST_S
    """The longest lease. Longer ones are for workers of tests, in virtual time."""

    def __init__(
        self,
        app: App,
        book: BookPort | Log,
        *,
        name: str | None = None,
        lease_s: float = lease_rules.LEASE_S,
        retention_s: float = RETENTION_MS / 1_000,
        history_s: float | None = None,
        failed_history_s: float | None = None,
        history_bytes: int | None = None,
        collect_every_s: float = COLLECT_EVERY_S,
        ages: Ages = AGES,
        hook: PayloadHook | None = None,
        random: Tokens | None = None,
        bodies: Bodies | None = None,
        tracing: Tracing | None = None,
        metrics: Metrics | None = None,
        stuck_after_s: float | None = STUCK_AFTER_S,
    ) -> None:
        """Prepare a worker, which starts in `async with`. Raises InvalidArgument: an option is out of range.

        Args:
            name: a name that no other living worker has; by default a random one.
            lease_s: seconds of silence after which a worker is dead, up to an hour. All workers of a group should have the same.
            retention_s: seconds for which results and ids of ended workflows are kept.
            history_s: seconds for which histories of successful workflows are kept; by default a day (`ages.carry_ms`).
            failed_history_s: seconds for which histories of failed workflows are kept; by default as long as results.
            history_bytes: bytes of histories, about, that are kept of ended workflows of this worker's partitions; by default 1 GiB.
            collect_every_s: seconds between two rounds of trims and rewrites.
            ages: ages after which records are rewritten or trimmed.
            bodies: the threads for steps that are plain functions; by default `ThreadBodies()`, up to 32 threads of this worker.
            tracing: the maker of spans; by default OpenTelemetry, if it is installed.
            stuck_after_s: seconds that workflow code may run without an `await` before the workflow is blocked. None: no bound.
        """
        check_lease(lease_s, self._lease_most_s)
        _check_options(name, retention_s, history_s, failed_history_s, history_bytes, collect_every_s, stuck_after_s)
        self.log: Final = book if isinstance(book, Log) else Log(book, hook=hook, random=random)
        self.bodies: Final[Bodies] = bodies or ThreadBodies()
        self.watch: Final = None if stuck_after_s is None else CodeWatch(stuck_after_s)
        self.failed_attempts: Final = FailedAttempts()
        self.flow: Final = Flow(app, self.log, hosting=self, random=random, tracing=tracing)
        self._peers: Final = Peers(self.log, app.group, name, lease_s, lambda: app.names)
        self.locks: Final = LockRoom(self.log, self._peers.fail)
        self.cancelled: Final = CancelledBodies(self.name)
        kept = ages._replace(retention_ms=round(retention_s * 1_000))
        self._partitions: Final = partitions_of(self.log, app.group, self.name, self._changed, self._note_leaving)
        self._rounds: Final = Rounds(lease_s, self._peers.silent_in, self._warn_of_late_loop)
        self._follower: Final = Follower(self.log, self._peers.fail)
        self._fences: Final = FenceWatch(self.log, self._follower, self.name, self._park)
        self._executors: Final[dict[str, Executor]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._rounding: Final = asyncio.Lock()
        self._unread: Final[dict[int, int]] = {}
        """Claimed partitions whose workflows are not read yet, with the seqnums of their claims."""
        self._takeover: Final = Takeover(self, app, self._partitions, self._peers)
        self._passed: Final = PassedMessages()
        self._blocked_workflows: Final = BlockedWorkflows(self, app, self._takeover, self._peers)
        self._draining: Final = Draining(self, app.group, self._partitions)
        histories = _histories(kept, history_s, failed_history_s, history_bytes)
        collector = Collector(self.log, app.group, kept, collect_every_s, metrics, histories)
        owned = self._partitions, self._unread, self._rounding, self._executors
        view = WorkerView(*owned, self._takeover.aside, self.is_mine, self.locks)
        self._upkeep: Final = Upkeep(self.log, app.group, collector, view)
        self._open = self.finishing = self._entered = self._tidying = self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._code = app.changes
        self._plans_set: Final[dict[str, Plan]] = {}

    @property
    def name(self) -> str:
        """The name of this start of the worker."""
        return self._peers.name

    # -- life

    async def __aenter__(self) -> Worker:
        confined.check("a worker")
        if self._entered:
            raise ClosedError(f"worker {self.name} was closed or drained and runs nothing more: make a new Worker")
        self._entered, self._loop = True, asyncio.get_running_loop()
        try:
            await self._begin()
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def _begin(self) -> None:
        self._open, self.finishing = True, False
        await self._peers.__aenter__()
        await self._partitions.follow(self._follower, self._peers)
        await self._round()
        self._blocked_workflows.begin(self._follower)
        self._spawn(partial(self._rounds.run, self._look, self._round_failed))
        self._spawn(self._upkeep.run)
        self._plans_set.clear()
        self._keep_schedules()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop at once. Other workers resume the workflows after a lease; after `drain` they do not have to wait."""
        check_here(self._loop, "leaving a worker", ADVICE)
        self._peers.stop()  # first: a worker that is cancelled while it leaves is dead to others too
        async with AsyncExitStack() as parts:  # it leaves the later parts also if leaving an earlier one is cancelled
            for part in (self.flow, self._peers, self._follower, self.locks):
                parts.push_async_exit(part)
            parts.push_async_callback(self._fences.close)
            if self.watch is not None:
                parts.callback(self.watch.close)
            if self._draining.task is not None:
                self._draining.task.cancel()
                parts.push_async_callback(partial(asyncio.gather, self._draining.task, return_exceptions=True))
            await self._stop()

    async def drain(self, *, finish_s: float = FINISH_S) -> list[str]:
        """Hand all workflows over to other workers, before a deploy and on SIGTERM.

        No workflow is claimed and no step begins. Other workers take over each workflow as soon as it has no running step. Running steps
        may end, and their outcomes are recorded. A plain function that runs longer is left in its thread, which ends with the process. A
        step that waits for a thread or for its next attempt begins at the other worker.

        The drain continues if this call is cancelled. Of several calls the shortest `finish_s` counts, and all return the same. A drained
        worker cannot be entered again. If the cluster does not answer, other workers take over after a lease.

        Args:
            finish_s: seconds after which running steps are cancelled; another worker runs them again. 0: at once. A step that has not
                ended a second after its cancellation is left behind, and its outcome is not recorded.

        Returns:
            The cancelled steps, as "charge of order-7".

        Raises:
            OnlyInSteps: workflow code called it.
            WrongLoop: another event loop or thread called it; nothing was done.
        """
        check_here(self._loop, "worker.drain()", ADVICE)
        if self._open and (self._draining.task is None or self._draining.task.done()):
            self.finishing = True
            self._draining.begin()
            self._draining.task = asyncio.create_task(self._drained(), name="bokiflow drain")
        if self._draining.task is None:
            return []
        self._draining.finish_within(finish_s)
        await asyncio.wait([self._draining.task])
        if not self._draining.task.cancelled():
            self._draining.task.result()
        return list(self._draining.cut)

    async def _drained(self) -> None:
        await self._draining.hand_over()
        await self._stop()
        if self._draining.cut:
            log.warning(
                "worker drained: steps cancelled, other workers run them again",
                worker=self.name,
                steps=self._draining.cut[:NAMED],
                count=len(self._draining.cut),
            )
        await self._draining.leave()

    async def _stop(self) -> None:
        """Stop all workflows. Running steps are cut off, and no other step begins."""
        self._open, self.finishing = False, True
        self._takeover.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        self._draining.cut.extend(
            f"{step} of {one.id}" for one in self._executors.values() for step in one.running_steps
        )
        ending = [task for executor in self._executors.values() for task in executor.close()]
        for id in list(self._executors):
            self.handed_over(id)
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.cancelled.ended([*ending, *self.cancelled.tasks])
        finally:
            self.failed_attempts.flush()
            self.spans.flush()
            if isinstance(self.bodies, ThreadBodies):
                self.bodies.flush()
            self.flow.results.follow_all()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]], about: str = "") -> None:
        """Run a task of the worker until it stops. `about`: the only workflow that an error of the task affects."""
        if self._open:
            self._spawn(work, about)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, object]], about: str = "") -> None:
        async def run() -> None:
            try:
                await work()
            except BokiError as error:
                log.warning(FAILED, worker=self.name, error=repr(error))
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if about and isinstance(error, Exception):
                    log.error(FAILED_ALONE, id=about, worker=self.name, error=repr(error))
                    return
                self.flow.results.failed_all(error)
                raise

        task = asyncio.get_running_loop().create_task(run(), name="bokiflow worker")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- client

    async def start(
        self,
        call: Call[R],
        *,
        id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        traceparent: str = "",
    ) -> Handle[R]:
        """Start a workflow; see `Flow.start`. Raises WrongLoop in another event loop or thread, before anything is done."""
        check_here(self._loop, "worker.start()", ADVICE)
        return await self.flow.start(call, id=id, attributes=attributes, traceparent=traceparent)

    @overload
    def handle(self, id: str) -> Handle[Json]: ...

    @overload
    def handle(self, id: str, workflow: Workflow[..., R]) -> Handle[R]: ...

    def handle(self, id: str, workflow: Workflow[..., Any] | None = None) -> Handle[Any]:
        """Return the handle of a workflow; see `Flow.handle`."""
        return self.flow.handle(id) if workflow is None else self.flow.handle(id, workflow)

    # -- partitions

    async def _look(self, is_due: bool) -> None:
        """Run a round. One that is due also begins the work that no change of a partition announces."""
        if self._peers.failed is not None:
            self._end(self._peers.failed)
            return
        if is_due:
            self._partitions.lost.clear()
        await self._round()
        if is_due and not self._tidying:
            self._spawn(self._tidy)

    def _end(self, error: Exception) -> None:
        """Fail all calls that wait for results: no heartbeat is sent any more, so other workers take everything over."""
        if not self._ended:
            self._ended = True
            log.error(
                "worker ended: it cannot append to its log or follow it any more, its calls fail",
                worker=self.name,
                error=repr(error),
            )
            self.flow.results.failed_all(error)

    def _round_failed(self, error: BokiError) -> None:
        log.warning(FAILED, worker=self.name, error=repr(error))

    async def _tidy(self) -> None:
        """Retry workflows, keep schedules and give up locks, beside the rounds, which must not wait for that."""
        self._tidying = True
        try:
            self._warn_of_namesakes()
            self._retry()
            self._keep_schedules()
            await self._blocked_workflows.read()
            await self.locks.tidy()
        finally:
            self._tidying = False

    def _warn_of_namesakes(self) -> None:
        """Log a warning, once for each living worker that has the name of this one."""
        for other in self._peers.new_namesakes():
            log.warning(
                "two workers have one name: each takes partitions from the other; give each a name of its own",
                name=self.name.rpartition(".")[0],
                worker=self.name,
                other=other,
            )

    def _warn_of_late_loop(self, seen_s: float, still_s: float) -> None:
        """Log a warning that the event loop stood still since `seen_s`, with the steps that may have blocked it."""
        steps = [f"{step} of {id}" for id, one in self._executors.items() for step in one.steps_since(seen_s)]
        log.warning(
            lease_rules.LOOP_LATE,
            seconds=round(still_s, 1),
            worker=self.name,
            steps=steps[:NAMED],
            count=len(steps),
            advice="make a step that blocks a plain def, which runs in a thread, or await asyncio.to_thread(...) in it",
        )

    def _retry(self) -> None:
        """Retry workflows that are set aside, once this program has other workflows or steps."""
        if self._code != self.flow.app.changes:
            self._code = self.flow.app.changes
            self._blocked_workflows.code_changed()
            for id in list(self._takeover.aside):
                self._resume(id)

    def _keep_schedules(self) -> None:
        """Set the schedules that this program has since the last round."""
        plans = [plan for name, plan in self.flow.app.plans.items() if self._plans_set.get(name) != plan]
        if plans and not self.finishing:
            self._plans_set.update({plan.name: plan for plan in plans})
            self._spawn(partial(self.flow.schedules.keep, plans, lambda plan: self._plans_set.get(plan.name) == plan))

    def saw_leaving(self, leaving: Leaving, seqnum: int) -> None:
        """Note that another worker is being drained, and claim the workflows that it no longer runs."""
        self._note_leaving(leaving, seqnum)
        self._takeover.worker_drained(leaving.worker)
        if leaving.worker in {*self._partitions.holders.values(), *self._takeover.others.values()}:
            self._changed()

    def _note_leaving(self, leaving: Leaving, seqnum: int) -> None:
        self._peers.saw_leaving(leaving.worker, seqnum, still_runs(leaving))

    def _changed(self) -> None:
        if self._open:
            self._rounds.wake()
            self._watch()

    def _watch(self) -> None:
        """Leave partitions that other workers own to them: follow fences of workflows that run here, and hold none back."""
        self._takeover.partitions_moved()
        for id, executor in self._executors.items():
            if not self.is_mine(id):
                self._fences.watch(id, executor.claim)

    def _park(self, id: str) -> None:
        if id in self._executors:
            self._executors[id].park()

    async def _round(self) -> None:
        """Claim the partitions that this worker should own, and workflows of workers that are gone."""
        async with self._rounding:
            if self.finishing:
                return
            self._unread.update(await self._partitions.take(partial(to_claim, self._partitions, self._peers)))
            if self._unread and not self.finishing:
                # A start that was acknowledged before these claims were known to hold is at or below the current position.
                await self._load(list(self._unread), max(*self._unread.values(), await self.log.book.now()))
        for id, worker in list(self._takeover.others.items()):
            if self._peers.is_gone(worker, id):
                self._claim_soon(id)

    async def _load(self, partitions: list[int], seqnum: int) -> None:
        """Read the workflows of claimed partitions. The clock of the log is read first, so it is past the claims when code runs."""
        await self.log.newest_ms(at_most=seqnum)
        for one in partitions:
            self.follow_sent(one, self._unread[one] + 1)
        unended = await unfinished(self.log, self.flow.group, partitions, seqnum)
        self._warn_of_unreadable(UNREADABLE, unended.unreadable)
        ids = [id for id in unended.ids if not self.runs(id)]
        unreadable: dict[str, BokiError] = {}
        states = await inspection.newest_of(self.log, ids, unreadable=unreadable)
        self._warn_of_unreadable(UNREADABLE_STATE, unreadable)
        for id, state in zip(ids, states, strict=True):
            if state is not None and state.ended is None:
                self._peers.saw_claim(state.owner, state.claim)
                self._takeover.others[id] = "" if state.owner == self.name else state.owner
        for one in partitions:
            self._unread.pop(one, None)

    def _warn_of_unreadable(self, what: str, errors: Mapping[Any, BokiError]) -> None:
        if errors:
            log.error(
                what,
                worker=self.name,
                found=list(errors)[:NAMED],
                count=len(errors),
                error=str(next(iter(errors.values()))),
            )

    def follow_sent(self, partition: int, start: int) -> None:
        """Follow messages to workflows of a partition."""
        sent = tags.flow_to(self.flow.group, partition)
        if sent not in self._follower:
            self._follower.add(sent, start, partial(self._receive, partition))

    def _receive(self, partition: int, item: Read | boki.Gap | BokiError) -> None:
        """Process a record with messages to workflows of a partition."""
        if not self._open:
            return
        if not isinstance(item, Read):
            for id in [id for id in (*self._executors, *self._takeover.claiming) if tags.partition_of(id) == partition]:
                self._spawn(partial(self._read_again, id), about=id)
            if partition in self._partitions.mine:  # trimmed starts are in a checkpoint of the partition
                self._spawn(partial(self._load_again, partition))
            return
        incoming: dict[str, list[Incoming]] = {}
        for event in PICKER.of(item.record.seqnum, item.envelope):
            if isinstance(event, INCOMING):
                incoming.setdefault(event.id, []).append(event)
            elif isinstance(event, Resumed):
                self._resume(event.id)
            elif isinstance(event, Terminated):
                self._passed.note(event.id, item.record.seqnum)
                self._terminated(event.id)
            elif (
                isinstance(event, Started)
                and event.group == self.flow.group
                and not event.owner
                and self.is_mine(event.id)
            ):
                self._claim_own(event.id)
        for id, several in incoming.items():
            self._deliver(id, item.record.seqnum, item.record.time_ms, tuple(several))

    def is_mine(self, id: str) -> bool:
        """Return True if this worker owns the partition of a workflow."""
        return tags.partition_of(id) in self._partitions.mine

    def _deliver(self, id: str, seqnum: int, time_ms: int, incoming: tuple[Incoming, ...]) -> None:
        if self._takeover.is_claiming(id):
            self._takeover.buffer(id, seqnum, time_ms, incoming)
        elif id in self._executors:
            self._executors[id].receive(seqnum, time_ms, incoming)
        else:
            self._pass(id, seqnum, incoming)

    def _pass(self, id: str, seqnum: int, incoming: tuple[Incoming, ...]) -> None:
        """Pass over messages to a workflow that does not run here; claim it if they may end it without its code."""
        self._passed.note(id, seqnum)
        if any(isinstance(event, Cancelled) for event in incoming):
            self._takeover.cancelled(id)

    def _terminated(self, id: str) -> None:
        """Drop a workflow that another process terminated; its next claim finds the end."""
        self._park(id)
        if self._open:
            self._takeover.retry(id)

    async def _load_again(self, partition: int) -> None:
        """Read the workflows of a partition again, after records were trimmed before they were followed, or could not be decoded."""
        async with self._rounding:
            if partition in self._partitions.mine:
                position = await self.log.book.now()
                self._unread[partition] = position
                await self._load([partition], position)

    def _resume(self, id: str) -> None:
        if self._open and not self.finishing and self.is_mine(id):
            self._takeover.retry(id)

    async def _read_again(self, id: str) -> None:
        """Deliver messages from the history of a workflow, after records were trimmed before they were followed, or could not be decoded.

        If its history has such a record, the workflow is blocked: without that message, it would not get the others in their order.
        """
        try:
            history = await inspection.whole_history(self.log, id)
        except inspection.UNREADABLE as error:
            if id in self._executors:
                self._executors[id].block(error)
            return
        for one in history.records:
            if one.incoming:
                self._deliver(id, one.seqnum, one.time_ms, one.incoming)

    # -- workflows

    def _claim_soon(self, id: str) -> None:
        if self._open and not self.finishing:
            self._takeover.claim_soon(id)

    def run(
        self, history: History, workflow: Workflow[..., Any], claim: int, *, tells_waiting: bool, own_uniques: bool
    ) -> None:
        """Run a claimed workflow."""
        id = history.started.id
        self.spans.begin(history.started, takeover=claim != history.start)
        executor = self._executors[id] = Executor(
            self, history, workflow, claim, claim, tells_waiting=tells_waiting, own_uniques=own_uniques
        )
        executor.begin(history.records)
        for seqnum, time_ms, incoming in self._takeover.take_buffered(id):
            executor.receive(seqnum, time_ms, incoming)
        if not self.is_mine(id):
            self._fences.watch(id, claim)

    async def collect(self) -> Collected:
        """Trim and rewrite old records of this worker's partitions, as each round does. Errors of the log are raised."""
        return await self._upkeep.round()

    # -- the host of executors and of parts of the worker

    @property
    def spans(self) -> Spans:
        return self.flow.spans

    def owner_of(self, id: str) -> tuple[str, int]:
        """Return this worker's name and its claim of a workflow's partition; ("", 0) if it does not own that."""
        claim = 0
        if self._open and not self.finishing:
            claim = self._partitions.mine.get(tags.partition_of(id), 0)
        return (self.name, claim) if claim else ("", 0)

    def began(self, started: Started, seqnum: int) -> None:
        """Run a workflow that was started in one of this worker's partitions."""
        # A claim reads the time of the record, if the start has none, and messages that were read before this answer came.
        if self._open and (not started.at_ms or self._passed.may_be_after(started.id, seqnum)):
            self._claim_own(started.id)
        elif self._open and not self.finishing and not self.runs(started.id):
            records = [RecordedEvents(seqnum, started.at_ms, 0, started=started)]
            self._takeover.begin(History(started, seqnum, None, records, seqnum, started.at_ms), seqnum)

    def token(self) -> str:
        return self.flow.token()

    async def end_of(self, id: str, start: int) -> Ended:
        return await self.flow.wait(id, start)

    def append_later(self, part: Contribution) -> None:
        if self._open:
            self._spawn(partial(self.log.append, part, settle=True))

    def lost(self, partition: int, claim: int) -> None:
        """Note that another worker owns a partition."""
        if self._partitions.forget(partition, claim) and self._open:
            self._watch()
            self._spawn(self._partitions.refresh)

    def unsure(self, id: str, ticket: TicketPort) -> None:
        """Run a workflow if the record of its start, whose appender does not learn the outcome, turns out to be in the log.

        The record may name this worker as the owner, so that no other worker runs it while this one lives.
        """
        if self._open:
            self._spawn(partial(self._claim_if_started, id, ticket), about=id)

    async def _claim_if_started(self, id: str, ticket: TicketPort) -> None:
        try:
            outcome: boki.Outcome | None = await retried(lambda: ticket.outcome(settle=True))
        except BokiError as error:  # the log does not tell any more: the claim reads whether there is a record
            log.warning("start of a workflow undecided: its state is read", id=id, worker=self.name, error=repr(error))
            outcome = None
        if outcome is None or isinstance(outcome, boki.Committed):
            self._claim_own(id)

    def _claim_own(self, id: str) -> None:
        """Claim a workflow that no worker runs. If the claim fails, each round claims it again."""
        if not self.runs(id):
            self._takeover.others.setdefault(id, "")
            self._claim_soon(id)

    def runs(self, id: str) -> bool:
        """Return True if a workflow runs here or is being claimed."""
        return id in self._executors or self._takeover.is_claiming(id)

    @property
    def executors(self) -> Mapping[str, Executor]:
        return self._executors

    @property
    def claiming(self) -> list[str]:
        return self._takeover.claiming

    def handed_over(self, id: str) -> None:
        self._remove(id)
        self.spans.end(id)
        self.flow.results.follow(id, 1)

    def given_up(self) -> None:
        self._watch()

    def _remove(self, id: str) -> None:
        self._executors.pop(id, None)
        self._fences.discard(id)

    def ended(self, id: str, ended: Ended) -> None:
        self._remove(id)
        self._takeover.others.pop(id, None)
        failure = ended.outcome.error
        if failure is not None and not ended.outcome.cancelled:
            log.warning(
                "workflow failed",
                id=id,
                name=ended.name,
                error=failure.text or failure.type.rpartition(":")[2],
                type=failure.type,
                stack=users_stack(failure.stack),
            )
        self.spans.end(id, ended)
        self.flow.results.ended(id, ended)

    def parked(self, id: str) -> None:
        self._remove(id)
        self.spans.end(id)
        if self._open:
            self._takeover.others[id] = ""
            self.flow.results.follow(id, 1)

    def blocked(self, id: str, error: BaseException, claim: int, carried_ms: int) -> None:
        self._remove(id)
        self.spans.end(id)
        if not isinstance(error, Exception):
            self._ends_process(id, error)
            self.flow.results.failed_all(error)
            return
        self._takeover.blocked(id, error, claim, carried_ms)

    def _ends_process(self, id: str, error: BaseException) -> None:
        """Log that a workflow stopped here by an error that ends a process, such as SystemExit."""
        text, stack = described(error), stack_of(error)
        log.error(
            "workflow left: an error ends its process, the next worker resumes it", id=id, error=text, stack=stack
        )

    def set_aside(self, id: str, error: Exception) -> None:
        self._blocked_workflows.note_tried(id)
        self.flow.results.blocked_here(id, error)

    def tried(self, id: str) -> bool:
        return self._blocked_workflows.has_tried(id)

    def stuck(self, id: str, stack: str) -> None:
        assert self.watch is not None
        error = str(stuck(id, stack, self.watch.after_s))
        log.warning(STUCK, id=id, worker=self.name, error=error, stack=users_stack(stack))

    def still_stuck(self, id: str, claim: int, stack: str) -> None:
        assert self.watch is not None
        self._takeover.record_stuck_elsewhere(id, stuck(id, stack, self.watch.after_s), claim)


def _check_options(
    name: str | None,
    retention_s: float,
    history_s: float | None,
    failed_history_s: float | None,
    history_bytes: int | None,
    collect_every_s: float,
    stuck_after_s: float | None,
) -> None:
    """Check the options of a worker, but its lease. Raises InvalidArgument."""
    check_member_name(name)
    check_seconds("retention_s=", retention_s)
    check_seconds("collect_every_s=", collect_every_s, above_0=True)
    for what, found in (("history_s=", history_s), ("failed_history_s=", failed_history_s)):
        if found is not None:
            check_seconds(what, found)
    if history_bytes is not None:
        check_whole("history_bytes=", history_bytes)
    if stuck_after_s is not None:
        check_seconds("stuck_after_s=", stuck_after_s, above_0=True)


def _histories(
    ages: Ages, history_s: float | None, failed_history_s: float | None, history_bytes: int | None
) -> Histories:
    return Histories(
        ages.carry_ms if history_s is None else round(history_s * 1_000),
        ages.retention_ms if failed_history_s is None else round(failed_history_s * 1_000),
        bytes=HISTORIES.bytes if history_bytes is None else history_bytes,
    )
