"""A process that runs workflows: it owns partitions of its group, runs what is started there, and takes over from who died.

    async with Worker(app, client.book("shop"), name="host-7") as worker:
        handle = await worker.start(checkout.call(order), id="order-7")

- Who is alive is judged by observed silence; safety is the fences'. A worker that begins again under its name takes its own place at once.
- What it runs of a partition that another owns by now, it runs on: the new owner claims it when this worker dies. So what it put down
  there it takes up itself, by a claim that expects its own last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar, overload

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
from bokiflow.execute.body import FailedAttempts
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
from bokiflow.worker.draining import Draining, ended
from bokiflow.worker.fences import FenceWatch
from bokiflow.worker.partition_owner import PartitionOwner
from bokiflow.worker.partition_rules import assigned, to_claim
from bokiflow.worker.peers import Peers
from bokiflow.worker.takeover import Takeover
from bokiflow.worker.upkeep import Upkeep, WorkerView
from bokilib.append.log import Log, Read, Tokens
from bokilib.errors import AppendUnknown
from bokilib.follow import lease_rules
from bokilib.follow.follower import Follower
from bokilib.ports import BookPort, PayloadHook
from bokilib.records import tags
from bokilib.records.codec import Json
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import RETENTION_MS, Ages

R = TypeVar("R")

CLAIM_ATTEMPTS: Final = 4
"""Of partitions, while others are faster."""
COLLECT_EVERY_S: Final = 60.0
FINISH_S: Final = 30.0
STUCK_AFTER_S: Final = 5.0
"""A third of the default lease: a stuck workflow is blocked in the log before other workers take this one for dead."""

FAILED_ALONE: Final = "workflow not looked at: an error of this program or of its payload hook; tried again later"
STUCK: Final = "workflow stuck: its code keeps the event loop from running; interrupted, as soon as a call that it waits for can be"

log = get_logger(__name__)


class Worker:
    """See the module.

    Attributes:
        flow: the workflows of the book, from outside. name: of this incarnation. locks: as this process sees them.
        finishing: it is being drained: it takes nothing new. failed_attempts: what logs attempts of steps that are retried.
    """

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
        """
        Args:
            name: of this worker, which no other has at the same time; by default a random one.
            lease_s: who is silent for so long is taken for dead. All workers of a group should have the same.
            retention_s: for so long results of what ended are kept, and ids remembered.
            history_s, failed_history_s: for so long histories of what ended are kept, and of what failed; by default for a day
                (`ages.carry_ms`), and for as long as results.
            history_bytes: about so much of histories of what ended this worker keeps of its partitions; beyond that the oldest go. By
                default 1 GiB.
            collect_every_s: seconds from one round that trims to the next. ages: what is as old as a term.
            bodies: where plain functions run that are steps; by default `ThreadBodies()`, up to 32 threads of this worker.
            tracing: who makes spans; by default OpenTelemetry, if it is installed.
            metrics: where it counts what it collects.
            stuck_after_s: seconds that code of a workflow may run without an `await`; then the workflow is blocked. None: no bound.
        """
        self.log: Final = book if isinstance(book, Log) else Log(book, hook=hook, random=random)
        self.bodies: Final[Bodies] = bodies or ThreadBodies()
        self.watch: Final = None if stuck_after_s is None else CodeWatch(stuck_after_s)
        self.locks: Final = LockRoom(self.log)
        self.failed_attempts: Final = FailedAttempts()
        self.flow: Final = Flow(app, self.log, hosting=self, random=random, tracing=tracing)
        self._peers: Final = Peers(self.log, app.group, name, lease_s)
        self.name: Final = self._peers.name
        kept = ages._replace(retention_ms=round(retention_s * 1_000))
        self._partitions: Final = PartitionOwner(self.log, app.group, self.name, self._changed, self._peers.saw_leaving)
        self._follower: Final = Follower(self.log)
        self._fences: Final = FenceWatch(self.log, self._follower, self.name, self._park)
        self._executors: Final[dict[str, Executor]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._rounding: Final = asyncio.Lock()
        self._unread: Final[dict[int, int]] = {}
        """Partitions that were claimed, and where, of which is not known yet what is there."""
        self._takeover: Final = Takeover(self, app, self._partitions, self._peers)
        self._blocked_workflows: Final = BlockedWorkflows(self, app, self._takeover, self._peers)
        self._draining: Final = Draining(self, self._partitions)
        histories = _histories(kept, history_s, failed_history_s, history_bytes)
        collector = Collector(self.log, app.group, kept, collect_every_s, metrics, histories)
        view = WorkerView(
            self._partitions,
            self._unread,
            self._rounding,
            self._executors,
            self._takeover.aside,
            self.is_mine,
            self.locks,
        )
        self._upkeep: Final = Upkeep(self.log, app.group, collector, view)
        self._open = self.finishing = False
        self._code = app.changes
        self._plans_set: Final[dict[str, Plan]] = {}

    # -- life

    async def __aenter__(self) -> Worker:
        confined.check("a worker")
        if self._draining.task is not None:
            raise ClosedError(f"worker {self.name} was drained, and takes nothing any more: make a new Worker")
        try:
            await self._begin()
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def _begin(self) -> None:
        self._open, self.finishing = True, False
        self._draining.cut.clear()
        await self._peers.__aenter__()
        self._peers.since = position = await self._partitions.look()
        for name in self._partitions.holders.values():
            self._peers.saw_claim(name, position)
        for one in range(tags.PARTITIONS):
            self._follower.add(tags.flow_partition_owner(self.flow.group, one), position + 1, self._partitions.saw)
        await self._round()
        self._blocked_workflows.begin(self._follower)
        self._spawn(self._rounds)
        self._spawn(self._upkeep.run)
        self._plans_set.clear()
        self._keep_schedules()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop at once. Other workers resume what runs after a lease; call `drain` before this, and they need not wait."""
        confined.check("leaving a worker")
        if self._draining.task is not None:
            self._draining.task.cancel()
        await self._stop()
        if self._draining.task is not None:
            await asyncio.gather(self._draining.task, return_exceptions=True)
        if self.watch is not None:
            self.watch.close()
        await self._fences.close()
        await self.locks.__aexit__(kind, error, trace)
        await self._follower.__aexit__(kind, error, trace)
        await self._peers.__aexit__(kind, error, trace)
        await self.flow.__aexit__(kind, error, trace)

    async def drain(self, *, finish_s: float = FINISH_S) -> list[str]:
        """Hand everything over to other workers: before a deploy, and on SIGTERM.

        Nothing new is taken and no step begins. Other workers take over at once what has no running step in its partition, and each other
        partition when its last step has ended. Steps that run may end, and their outcomes are recorded. A plain function that runs on is
        left in its thread, which ends with the process. A step whose function does not run, since it waits for a thread or for its next
        attempt, begins at the other worker.

        The worker is drained also if this call is cancelled. Of several calls the shortest `finish_s` counts, and all return the same. A
        worker that was drained cannot be entered again. If the cluster does not answer, other workers wait for a lease.

        Args:
            finish_s: seconds after which steps are cancelled that run still; another worker runs them again. 0: at once. A step that has
                not ended a second after its cancellation is left behind: its outcome is not recorded.

        Returns:
            The steps that were cancelled: "charge of order-7".

        Raises:
            OnlyInSteps: code of a workflow called it.
        """
        confined.check("worker.drain()")
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
        """Stop what runs. No step begins from here on, and none ends: those that run are cut off."""
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
        await asyncio.gather(*tasks, return_exceptions=True)
        await ended(ending, self.name)
        self.flow.results.follow_all()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]], about: str = "") -> None:
        """See `takeover.TakeoverHost`."""
        if self._open:
            self._spawn(work, about)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, object]], about: str = "") -> None:
        """Run something in the background. `about`: the only workflow that an error of it concerns; "": it concerns all."""

        async def run() -> None:
            try:
                await work()
            except BokiError as error:
                log.warning("a worker looks again later", worker=self.name, error=repr(error))
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

    # -- outside of workflows

    async def start(
        self,
        call: Call[R],
        *,
        id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        traceparent: str = "",
    ) -> Handle[R]:
        """See `Flow.start`."""
        return await self.flow.start(call, id=id, attributes=attributes, traceparent=traceparent)

    @overload
    def handle(self, id: str) -> Handle[Json]: ...

    @overload
    def handle(self, id: str, workflow: Workflow[..., R]) -> Handle[R]: ...

    def handle(self, id: str, workflow: Workflow[..., Any] | None = None) -> Handle[Any]:
        """See `Flow.handle`."""
        return self.flow.handle(id) if workflow is None else self.flow.handle(id, workflow)

    # -- partitions

    async def _rounds(self) -> None:
        while True:
            look_in_s = self._peers.next_look_s()
            due_s = asyncio.get_running_loop().time() + look_in_s
            await asyncio.sleep(look_in_s)
            self._warn_if_late(due_s)
            try:
                self._partitions.lost.clear()
                await self._round()
                self._peers.warn_of_namesakes()
                self._retry()
                self._keep_schedules()
                await self._blocked_workflows.look()
                await self.locks.tidy()
            except BokiError as error:
                log.warning("a worker looks again later", worker=self.name, error=repr(error))

    def _warn_if_late(self, due_s: float) -> None:
        """Warn that the event loop stood still since `due_s`, with the steps that may have blocked it."""
        late_s = lease_rules.loop_late_s(due_s, asyncio.get_running_loop().time(), self._peers.lease_s)
        if not late_s:
            return
        steps = [f"{step} of {id}" for id, one in self._executors.items() for step in one.steps_since(due_s)]
        log.warning(
            lease_rules.LOOP_LATE,
            seconds=round(late_s, 1),
            worker=self.name,
            steps=steps[:NAMED],
            count=len(steps),
            advice="make a step that blocks a plain def, which runs in a thread, or await asyncio.to_thread(...) in it",
        )

    def _retry(self) -> None:
        """Try what is set aside again, once this program has another workflow or step than before."""
        if self._code != self.flow.app.changes:
            self._code = self.flow.app.changes
            self._blocked_workflows.code_changed()
            for id in list(self._takeover.aside):
                self._resume(id)

    def _keep_schedules(self) -> None:
        """Set the schedules that this program has now, and did not have at the last look."""
        plans = [plan for name, plan in self.flow.app.plans.items() if self._plans_set.get(name) != plan]
        if plans and not self.finishing:
            self._plans_set.update({plan.name: plan for plan in plans})
            self._spawn(partial(self.flow.schedules.keep, plans, lambda plan: self._plans_set.get(plan.name) == plan))

    def saw_leaving(self, leaving: Leaving, seqnum: int) -> None:
        """See `blocked_workflows.BlockedWorkflowsHost`."""
        self._peers.saw_leaving(leaving, seqnum)
        self._takeover.worker_drained(leaving.worker)
        if leaving.worker in {*self._partitions.holders.values(), *self._takeover.others.values()}:
            self._changed()

    def _changed(self) -> None:
        if self._open:
            self._spawn(self._round)
            self._watch()

    def _watch(self) -> None:
        """Others may claim what runs here of partitions that they own, and what is held back here they hold back."""
        self._takeover.partitions_moved()
        for id, executor in self._executors.items():
            if not self.is_mine(id):
                self._fences.watch(id, executor.claim)

    def _park(self, id: str) -> None:
        if id in self._executors:
            self._executors[id].park()

    async def _round(self) -> None:
        """Claims what it should own, and what was left behind."""
        async with self._rounding:
            if self.finishing:
                return
            for _ in range(CLAIM_ATTEMPTS):
                claims = self._to_claim()
                seqnum = await self._partitions.claim(claims) if claims else 0
                if seqnum or not claims:
                    self._unread.update(dict.fromkeys(claims, seqnum))
                    break
            if self._unread and not self.finishing:
                # What was announced of before the claims were known to count is at or below now.
                await self._load(list(self._unread), max(*self._unread.values(), await self.log.book.now()))
        for id, who in list(self._takeover.others.items()):
            if self._peers.is_gone(who, id):
                self._claim_soon(id)

    def _to_claim(self) -> list[int]:
        holders = self._partitions.holders
        gone = [name for name in sorted(set(holders.values())) if self._peers.is_leaving(name)]
        if self._peers.settled():
            # A holder may be alive and not heard yet: its lease may be longer than this worker has listened.
            wanted = assigned(self.name, {*self._peers.alive(), *holders.values()}.difference(gone))
            return to_claim(wanted, holders, self.name, gone, settled=True, lost=self._partitions.lost)
        # Until others are known, a worker takes what no other has.
        return to_claim(range(tags.PARTITIONS), holders, self.name, gone, settled=False, lost=self._partitions.lost)

    async def _load(self, partitions: list[int], seqnum: int) -> None:
        """What is there of partitions that were claimed at a place. Whoever runs something has seen the time of his own claim."""
        await self.log.newest_ms(at_most=seqnum)
        for one in partitions:
            self.follow_sent(one, self._unread[one] + 1)
        ids = [id for id in await self._partitions.unfinished(partitions, seqnum) if not self.runs(id)]
        for id, state in zip(ids, await inspection.newest_of(self.log, ids), strict=True):
            if state is not None and state.ended is None:
                self._peers.saw_claim(state.owner, state.claim)
                self._takeover.others[id] = "" if state.owner == self.name else state.owner
        for one in partitions:
            self._unread.pop(one, None)

    def follow_sent(self, partition: int, start: int) -> None:
        """See `blocked_workflows.BlockedWorkflowsHost`."""
        sent = tags.flow_to(self.flow.group, partition)
        if sent not in self._follower:
            self._follower.add(sent, start, partial(self._receive, partition))

    def _receive(self, partition: int, item: Read | boki.Gap | BokiError) -> None:
        """Takes what was sent to workflows of a partition."""
        if not self._open:
            return
        if not isinstance(item, Read):
            for id in [id for id in (*self._executors, *self._takeover.claiming) if tags.partition_of(id) == partition]:
                self._spawn(partial(self._read_again, id), about=id)
            if partition in self._partitions.mine:  # what was started is in what a checkpoint of the partition has
                self._spawn(partial(self._load_again, partition))
            return
        incoming: dict[str, list[Incoming]] = {}
        for event in PICKER.of(item.record.seqnum, item.envelope):
            if isinstance(event, INCOMING):
                incoming.setdefault(event.id, []).append(event)
            elif isinstance(event, Resumed):
                self._resume(event.id)
            elif isinstance(event, Terminated):
                self._terminated(event.id)
            elif (
                isinstance(event, Started)
                and event.group == self.flow.group
                and not event.owner
                and self.is_mine(event.id)
            ):
                self._takeover.others.setdefault(event.id, "")
                self._claim_soon(event.id)
        for id, several in incoming.items():
            self._deliver(id, item.record.seqnum, item.record.time_ms, tuple(several))

    def is_mine(self, id: str) -> bool:
        """See `blocked_workflows.BlockedWorkflowsHost`."""
        return tags.partition_of(id) in self._partitions.mine

    def _deliver(self, id: str, seqnum: int, time_ms: int, incoming: tuple[Incoming, ...]) -> None:
        if self._takeover.is_claiming(id):
            self._takeover.buffer(id, seqnum, time_ms, incoming)
        elif id in self._executors:
            self._executors[id].receive(seqnum, time_ms, incoming)
        elif any(isinstance(event, Cancelled) for event in incoming):
            self._takeover.cancelled(id)

    def _terminated(self, id: str) -> None:
        """Drop a workflow that another process has ended: the next look at it finds its end."""
        self._park(id)
        if self._open:
            self._takeover.retry(id)

    async def _load_again(self, partition: int) -> None:
        async with self._rounding:
            if partition in self._partitions.mine:
                position = await self.log.book.now()
                self._unread[partition] = position
                await self._load([partition], position)

    def _resume(self, id: str) -> None:
        """Somebody asks that it be tried again."""
        if self._open and not self.finishing and self.is_mine(id):
            self._takeover.retry(id)

    async def _read_again(self, id: str) -> None:
        """What was trimmed before it was followed is in the history."""
        for one in (await inspection.whole_history(self.log, id)).records:
            if one.incoming:
                self._deliver(id, one.seqnum, one.time_ms, one.incoming)

    # -- workflows

    def _claim_soon(self, id: str) -> None:
        if self._open and not self.finishing:
            self._takeover.claim_soon(id)

    def run(self, history: History, workflow: Workflow[..., Any], claim: int, *, tells_waiting: bool) -> None:
        """See `takeover.TakeoverHost`."""
        id = history.started.id
        self.spans.begin(history.started, takeover=claim != history.start)
        executor = self._executors[id] = Executor(self, history, workflow, claim, claim, tells_waiting=tells_waiting)
        executor.begin(history.records)
        for seqnum, time_ms, incoming in self._takeover.take_buffered(id):
            executor.receive(seqnum, time_ms, incoming)
        if not self.is_mine(id):
            self._fences.watch(id, claim)

    # -- what goes

    async def collect(self) -> Collected:
        """Trims what nobody needs any more of the partitions that this worker owns, and of what it runs; one round.

        Raises:
            Errors of reads and appends: the next round goes on.
        """
        return await self._upkeep.round()

    # -- Hosting, Host

    @property
    def spans(self) -> Spans:
        """See `executor.Host`."""
        return self.flow.spans

    def owner_of(self, id: str) -> tuple[str, int]:
        """See `executor.Host`."""
        claim = 0
        if self._open and not self.finishing:
            claim = self._partitions.mine.get(tags.partition_of(id), 0)
        return (self.name, claim) if claim else ("", 0)

    def began(self, started: Started, seqnum: int) -> None:
        """See `executor.Host`."""
        if self._open and not started.at_ms:  # it began when its record was ordered, which a claim reads
            self._claim_soon(started.id)
        elif self._open and not self.finishing and not self.runs(started.id):
            records = [RecordedEvents(seqnum, started.at_ms, 0, started=started)]
            self._takeover.begin(History(started, seqnum, None, records, seqnum, started.at_ms), seqnum)

    def token(self) -> str:
        """See `family.FamilyHost`."""
        return self.flow.token()

    async def end_of(self, id: str, start: int) -> Ended:
        """See `family.FamilyHost`."""
        return await self.flow.wait(id, start)

    def append_later(self, part: Contribution) -> None:
        """See `family.FamilyHost`."""
        if self._open:
            self._spawn(partial(self.log.append, part, settle=True))

    def lost(self, partition: int, claim: int) -> None:
        """See `composing.ComposerHost`."""
        if self._partitions.mine.get(partition) == claim:
            del self._partitions.mine[partition]
            if self._open:
                self._watch()
                self._spawn(self._partitions.look)

    def unsure(self, id: str, error: AppendUnknown) -> None:
        """Perhaps it was started, and is this worker's."""
        self._spawn(partial(self._claim_if_started, id, error), about=id)

    async def _claim_if_started(self, id: str, error: AppendUnknown) -> None:
        if isinstance(await error.outcome(), boki.Committed):
            self._takeover.others[id] = ""
            self._claim_soon(id)

    def runs(self, id: str) -> bool:
        """Whether a workflow is run here, or about to be."""
        return id in self._executors or self._takeover.is_claiming(id)

    @property
    def executors(self) -> Mapping[str, Executor]:
        """See `draining.DrainingHost`."""
        return self._executors

    @property
    def claiming(self) -> list[str]:
        """See `draining.DrainingHost`."""
        return self._takeover.claiming

    def handed_over(self, id: str) -> None:
        """See `draining.DrainingHost`."""
        self._remove(id)
        self.spans.end(id)
        self.flow.results.follow(id, 1)

    def given_up(self) -> None:
        """See `draining.DrainingHost`."""
        self._watch()

    def _remove(self, id: str) -> None:
        """It is not run here any more."""
        self._executors.pop(id, None)
        self._fences.leave(id)

    def ended(self, id: str, ended: Ended) -> None:
        """See `executor.Host`."""
        self._remove(id)
        self._takeover.others.pop(id, None)
        failure = ended.outcome.error
        if failure is not None and not ended.outcome.cancelled:
            log.warning(
                "workflow failed",
                id=id,
                name=ended.name,
                error=failure.message,
                type=failure.type,
                stack=users_stack(failure.stack),
            )
        self.spans.end(id, ended)
        self.flow.results.ended(id, ended)

    def parked(self, id: str) -> None:
        """See `executor.Host`."""
        self._remove(id)
        self.spans.end(id)
        if self._open:
            self._takeover.others[id] = ""
            self.flow.results.follow(id, 1)

    def blocked(self, id: str, error: BaseException, claim: int, carried_ms: int) -> None:
        """See `executor.Host`."""
        self._remove(id)
        self.spans.end(id)
        if not isinstance(error, Exception):
            log.warning("a workflow is blocked", id=id, error=str(error))
            self.flow.results.failed_all(error)
            return
        self._takeover.blocked(id, error, claim, carried_ms)

    def set_aside(self, id: str, error: Exception) -> None:
        """See `takeover.TakeoverHost`."""
        self._blocked_workflows.tried(id)
        self.flow.results.blocked_here(id, error)

    def tried(self, id: str) -> bool:
        """See `takeover.TakeoverHost`."""
        return self._blocked_workflows.has_tried(id)

    def stuck(self, id: str, claim: int, stack: str) -> None:
        """See `executor.Host`."""
        assert self.watch is not None
        error = stuck(id, stack, self.watch.after_s)
        log.warning(STUCK, id=id, worker=self.name, error=str(error), stack=users_stack(stack))
        self._takeover.record_stuck_elsewhere(id, error, claim)


def _histories(
    ages: Ages, history_s: float | None, failed_history_s: float | None, history_bytes: int | None
) -> Histories:
    """Return what of histories is kept; see `Worker`."""
    return Histories(
        ages.carry_ms if history_s is None else round(history_s * 1_000),
        ages.retention_ms if failed_history_s is None else round(failed_history_s * 1_000),
        bytes=HISTORIES.bytes if history_bytes is None else history_bytes,
    )
