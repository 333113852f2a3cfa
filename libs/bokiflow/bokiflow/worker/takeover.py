"""Takeovers: a worker claims workflows that no living worker runs, reads their histories, and runs them.

- A claim expects the newest record of the workflow's fence, and the claim of its partition if this worker owns that.
- Messages to a workflow are buffered while its history is read.
- A worker whose program lacks the workflow sets it aside: its record blocks the workflow, with the reason, and no worker owns the workflow
  until one with its code claims it (`blocked_workflows`). A workflow that is blocked for that reason already gets no further record, so old
  workers that find it in turn append nothing.
- A workflow whose code cannot continue here (NonDeterminism, a set-up error of the program that the code does not handle) is set aside
  too (`record_blocked`). So is one whose history this program cannot read because a newer program wrote it.
- A workflow that is blocked because its code stopped the event loop (WorkflowStuck) runs again only when it is resumed. If it is cancelled,
  it ends without its code: the owner of its partition ends it, cancels its children and releases its locks. The same worker ends a workflow
  that was terminated (`terminating`) by a program that died before the end was in the log.
- A workflow that was begun in vain several times in a row is held back (`held_back`): it is not claimed before its pause has passed, unless
  it is cancelled or resumed, or its worker turns out to have been drained. Its claim reads the messages of that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

import msgspec

import boki
from boki_common.errors import BokiError, ClosedError, Conflict
from boki_common.logs import get_logger
from bokiflow.client.app import App
from bokiflow.errors import SET_UP, NotRegistered, WorkflowStuck
from bokiflow.history import inspection
from bokiflow.history.ends import (
    REASON_CHARS,
    end_of_blocked,
    end_without_code,
    is_stuck,
    is_terminated,
    outcome_without_code,
    waits_for_code,
)
from bokiflow.history.instance_state import InstanceState
from bokiflow.model import records
from bokiflow.model.flow_events import Cancelled, Claimed, Ended, Incoming, Leaving
from bokiflow.model.history_fold import History
from bokiflow.model.outcomes import stack_of
from bokiflow.runtime.calls import Workflow
from bokiflow.worker import held_back
from bokilib.append.log import Log
from bokilib.partitions.owner import PartitionOwner
from bokilib.partitions.peers import Peers
from bokilib.pauses import pauses
from bokilib.records import tags

CLAIMS: Final = 64
"""Workflows that are claimed at the same time."""
PASSED: Final = 1_024
STACK_CHARS: Final = 4_096
ELSEWHERE_S: Final = 5.0
"""Seconds for the record of a stuck workflow, over a connection of its own."""

STAYS_STUCK: Final = (
    "workflow stays blocked: its code was stuck; not tried again until `boki flow resume --all --error WorkflowStuck`"
)
NOT_RECORDED: Final = "blocked workflow not recorded: another attempt follows, no other worker tries it before"

log = get_logger(__name__)


class TakeoverHost(Protocol):
    """The worker that takes workflows over."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def finishing(self) -> bool:
        """True while the worker is being drained; it claims nothing."""

    def runs(self, id: str) -> bool:
        """Return True if a workflow runs here or is being claimed."""

    def run(
        self, history: History, workflow: Workflow[..., object], claim: int, *, tells_waiting: bool, own_uniques: bool
    ) -> None:
        """Run a claimed workflow. `tells_waiting`: it records once that it only waits, which returns its count of begins in vain to 0."""

    def set_aside(self, id: str, error: Exception) -> None:
        """Note that a workflow cannot run here; a record of that exists or is being appended."""

    def tried(self, id: str) -> bool:
        """Return True if this worker tried a workflow with its code, and the workflow was not resumed since."""

    def ended(self, id: str, ended: Ended) -> None:
        """Note that a workflow ended before it was claimed."""

    def lost(self, partition: int, claim: int) -> None:
        """Note that another worker owns a partition."""

    def spawn(self, work: Callable[[], Coroutine[None, None, object]], about: str = "") -> None:
        """Run a task of the worker until it stops. `about`: the only workflow that an error of the task affects."""


class PassedMessages:
    """Messages that were read for workflows that neither run here nor are being claimed. Pure.

    A workflow whose start was appended here begins when the answer comes, and messages to it may be read before. If there is one, the
    workflow has to be claimed: a claim reads the history. Of at most `PASSED` workflows the messages are known one by one; of others the
    seqnum below which they are.
    """

    def __init__(self) -> None:
        self._newest: Final[dict[str, int]] = {}
        self._forgotten = 0

    def note(self, id: str, seqnum: int) -> None:
        """Note a message that was read."""
        self._newest.pop(id, None)
        self._newest[id] = seqnum
        if len(self._newest) > PASSED:
            self._forgotten = max(self._forgotten, self._newest.pop(next(iter(self._newest))))

    def may_be_after(self, id: str, start: int) -> bool:
        """Return True if a message may have been read to a workflow that was started at this seqnum."""
        return self._forgotten > start or self._newest.get(id, 0) > start


class Takeover:
    """The takeovers of one worker; see the module.

    Attributes:
        others: workflows of this worker's partitions that another worker runs or ran, with its name; "" if none does.
        aside: workflows that are set aside, with the times of their oldest records.
    """

    def __init__(self, host: TakeoverHost, app: App, partitions: PartitionOwner[Leaving], peers: Peers) -> None:
        self.others: Final[dict[str, str]] = {}
        self.aside: Final[dict[str, int]] = {}
        self._host: Final = host
        self._app: Final = app
        self._partitions: Final = partitions
        self._peers: Final = peers
        self._at_once: Final = asyncio.Semaphore(CLAIMS)
        self._claiming: Final[dict[str, list[tuple[int, int, tuple[Incoming, ...]]]]] = {}
        """Workflows that are being claimed, with the messages (seqnum, time, events) to them meanwhile."""
        self._held_back: Final[dict[str, asyncio.TimerHandle]] = {}
        """Workflows that are held back, with the timers that claim them."""
        self._resumed: Final[set[str]] = set()
        """Resumed workflows, stuck ones too, until a claim has tried them. None of them runs here."""

    @property
    def claiming(self) -> list[str]:
        """The ids of workflows that are being claimed."""
        return list(self._claiming)

    def is_claiming(self, id: str) -> bool:
        return id in self._claiming

    def buffer(self, id: str, seqnum: int, time_ms: int, incoming: tuple[Incoming, ...]) -> None:
        """Buffer messages to a workflow that is being claimed."""
        self._claiming[id].append((seqnum, time_ms, incoming))

    def take_buffered(self, id: str) -> list[tuple[int, int, tuple[Incoming, ...]]]:
        """Return the messages to a workflow during its claim, and end the claim."""
        return self._claiming.pop(id, [])

    def claim_soon(self, id: str, *, beyond: bool = False) -> None:
        """Claim a workflow that no worker runs. `beyond`: claim it even from a partition of another worker, if it is blocked."""
        if not self._host.runs(id) and id not in self._held_back:
            self._claiming[id] = []
            self._host.spawn(partial(self._claim, id, beyond=beyond), id)

    def runs_elsewhere(self, id: str, owner: str) -> None:
        """Note the worker that runs a workflow of this worker's partitions; "" if none does yet."""
        if not self._host.runs(id):
            self.aside.pop(id, None)
            self.others[id] = "" if owner == self._host.name else owner

    def is_blocked(self, id: str) -> None:
        """Note a workflow of this worker's partitions that another worker set aside."""
        if not self._host.runs(id) and id not in self.aside:
            self.others.pop(id, None)
            self.aside[id] = self._host.log.now_ms()

    def retry(self, id: str) -> None:
        """Claim a resumed workflow of this worker's partitions, unless it runs here: its next block is not resumed."""
        if self.is_claiming(id):  # the claim may have found already that it is stuck
            self._resumed.add(id)
        elif not self._host.runs(id):
            self.aside.pop(id, None)
            self._resumed.add(id)
            self.others.setdefault(id, "")
            self._release(id)
            self.claim_soon(id)

    def cancelled(self, id: str) -> None:
        """Claim a cancelled workflow that is held back or set aside. One whose code is lacking ends when a worker has the code."""
        if self._release(id) or (id in self.aside and not self._host.runs(id)):
            self.claim_soon(id)

    def worker_drained(self, worker: str) -> None:
        """Claim held-back workflows of a worker that turned out to be drained."""
        for id in [id for id in self._held_back if self.others.get(id) == worker]:
            self._release(id)
            self.claim_soon(id)

    def partitions_moved(self) -> None:
        """Forget held-back workflows of partitions that another worker owns now; that worker holds them back."""
        for id in [id for id in self._held_back if tags.partition_of(id) not in self._partitions.mine]:
            self._release(id)

    def close(self) -> None:
        """Forget held-back workflows, when the worker stops."""
        for id in list(self._held_back):
            self._release(id)

    def _release(self, id: str) -> bool:
        """Hold a workflow back no longer. Return False if it was not held back."""
        timer = self._held_back.pop(id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    async def _claim(self, id: str, *, beyond: bool = False) -> None:
        try:
            async with self._at_once:
                if not self._host.finishing:
                    await self._take_over(id, beyond=beyond)
        finally:
            self._claiming.pop(id, None)
        if id in self._resumed:  # not after an error: then the next claim tries the workflow
            self._resumed.discard(id)
            if id in self.aside:  # resumed while this claim set it aside
                self.retry(id)

    async def _take_over(self, id: str, *, beyond: bool) -> None:
        host = self._host
        place = records.InstanceStreams(id, self._app.group)
        while True:
            state = await inspection.newest(host.log, id)
            partition_claim = self._partitions.mine.get(place.partition)
            if state is None:
                self.others.pop(id, None)
                return
            if state.ended is not None:
                ended = await inspection.outcome_of(host.log, id, state)
                assert ended is not None
                host.ended(id, ended)
                return
            owned = partition_claim is not None or state.owner == host.name
            if not owned and not (beyond and state.blocked):  # left to the owner of its partition
                self.others.pop(id, None)
                return
            self._peers.saw_claim(state.owner, state.claim)
            if state.owner and state.owner != host.name and not self._peers.is_gone(state.owner, id):
                self.others[id] = state.owner
                return
            if is_terminated(state) or (is_stuck(state) and id not in self._resumed):
                if await self._settle_stuck(place, state, partition_claim):
                    return
                continue
            if state.blocked and id not in self._resumed and host.tried(id):
                await self._stays_aside(id)
                return
            vain = await self._begun_in_vain(state, id)
            if vain is None:
                return
            call = await inspection.started_call(host.log, id, state)
            if call is None:
                return
            pause_ms = held_back.pause_ms(id, state.claim, vain, self._peers.lease_s)
            claimed = Claimed(
                *(id, host.name, 0, call.start, call.name, call.digest, call.group),
                vain=vain,
                pause_ms=pause_ms,
                own_uniques=state.own_uniques,
            )
            lacking = self._lacking(call.name)
            if lacking is not None and not owned:
                return
            if lacking is not None:
                claimed = msgspec.structs.replace(claimed, owner="", blocked=reason(lacking))
            part = records.claim(place, claimed, state.claim, partition_claim)
            try:
                if lacking is not None and waits_for_code(state):
                    seqnum = state.claim
                else:
                    seqnum = await host.log.append(part, settle=True)
                break
            except Conflict as conflict:
                if partition_claim and place.partition_owner in host.log.moved(part.expect, conflict):
                    host.lost(place.partition, partition_claim)
                    return
        if lacking is None:
            await self._begin_claimed(id, seqnum, tells_waiting=vain > held_back.AT_ONCE, own_uniques=state.own_uniques)
        else:
            carried_ms = await self._oldest_ms(id)
            self.others.pop(id, None)
            self._resumed.discard(id)
            self._put_aside(id, lacking, carried_ms)

    async def _begin_claimed(self, id: str, claim: int, *, tells_waiting: bool, own_uniques: bool) -> None:
        """Run a workflow that was just claimed; block it if this program cannot read its history."""
        try:
            history = await inspection.history(self._host.log, id, claim)
            self.begin(history, claim, tells_waiting=tells_waiting, own_uniques=own_uniques)
        except Exception as error:
            if isinstance(error, BokiError) and not isinstance(error, inspection.UNREADABLE):
                raise
            self.others.pop(id, None)
            self._resumed.discard(id)
            self.blocked(id, error, claim, self._host.log.now_ms())

    async def _stays_aside(self, id: str) -> None:
        """Note a blocked workflow that this worker tried before it owned the partition."""
        carried_ms = await self._oldest_ms(id)
        self.others.pop(id, None)
        self.aside[id] = carried_ms

    async def _oldest_ms(self, id: str) -> int:
        """Return the time of the oldest record of a workflow's history; now, if this program cannot read the history."""
        try:
            return (await inspection.whole_history(self._host.log, id)).carried_ms
        except inspection.UNREADABLE:
            return self._host.log.now_ms()

    async def _begun_in_vain(self, state: InstanceState, id: str) -> int | None:
        """Return the count of begins in vain for a claim of a workflow; None if the workflow is held back instead."""
        if id in self._resumed:
            return 0
        since = inspection.SinceClaim(state.vain)
        if state.vain and self._is_lost(state.owner):  # a first begin in vain holds nothing back, so it needs no read
            since = await inspection.since_claim(self._host.log, id, state)
        # Asked again: during the read this worker may have learned that the other one was drained.
        lost = self._is_lost(state.owner)
        vain = held_back.begun_in_vain(since.vain, lost=lost, progressed=since.progressed)
        if id in self._resumed:
            return 0
        sent = [event for _, _, incoming in self._claiming.get(id, ()) for event in incoming]
        cancelled = since.cancelled or any(isinstance(event, Cancelled) for event in sent)
        left_ms = held_back.left_ms(vain, state.pause_ms, state.time_ms, self._host.log.now_ms())
        if cancelled or not lost or not left_ms:
            return vain
        self._hold_back(id, state.owner, vain, left_ms)
        return None

    def _is_lost(self, owner: str) -> bool:
        return owner not in ("", self._host.name) and self._peers.was_lost(owner)

    def _hold_back(self, id: str, owner: str, vain: int, left_ms: int) -> None:
        self.others[id] = owner
        log.warning(
            "workflow held back: its process ended or stood still each time it ran; check its steps, cancel it if one ends the process",
            id=id,
            times=vain,
            begins_in_s=round(left_ms / 1_000, 1),
            show=f"boki flow show {id}",
            end=f"boki flow cancel {id}",
        )
        loop = asyncio.get_running_loop()
        self._held_back[id] = loop.call_later((left_ms + 1) / 1_000, self._claim_held_back, id)

    def _claim_held_back(self, id: str) -> None:
        self._held_back.pop(id, None)
        self.claim_soon(id)

    async def _settle_stuck(
        self, place: records.InstanceStreams, state: InstanceState, partition_claim: int | None
    ) -> bool:
        """Set a stuck workflow aside, or end it if it was cancelled or terminated. Return False after a Conflict: then read it again."""
        opened = self._host.log
        history = await inspection.whole_history(opened, place.id)
        self.others.pop(place.id, None)
        sent = [event for one in history.records for event in one.incoming]
        sent += [event for _, _, incoming in self._claiming.get(place.id, ()) for event in incoming]
        if not is_terminated(state) and not any(isinstance(event, Cancelled) for event in sent):
            if place.id not in self.aside:
                error = WorkflowStuck(state.blocked.partition(": ")[2], id=place.id)
                since = _utc(await inspection.newest_ms(opened, place.id))
                log.warning(STAYS_STUCK, id=place.id, since=since, error=str(error).partition("\n")[0])
                self.aside[place.id] = history.carried_ms
                self._host.set_aside(place.id, error)
            return True
        ended = end_of_blocked(history, outcome_without_code(state), opened.now_ms())
        parts = end_without_code(place, history, ended, state.claim, partition_claim)
        try:
            for part in parts:
                await opened.append(part, settle=True)
        except Conflict as conflict:
            if partition_claim and place.partition_owner in opened.moved(parts[-1].expect, conflict):
                self._host.lost(place.partition, partition_claim)
                return True
            return False
        self.aside.pop(place.id, None)
        self._host.ended(place.id, ended)
        return True

    def begin(
        self, history: History, claim: int, *, tells_waiting: bool = False, own_uniques: bool | None = None
    ) -> None:
        """Run a workflow under a claim of this worker, or set it aside if this program lacks it.

        `own_uniques` is that of the claim; None for that of the start.
        """
        id, name = history.started.id, history.started.name
        lacking = self._lacking(name)
        if lacking is not None:
            self._claiming.pop(id, None)
            self.blocked(id, lacking, claim, history.carried_ms)
            return
        self.others.pop(id, None)
        self.aside.pop(id, None)
        self._resumed.discard(id)
        own = history.started.own_uniques if own_uniques is None else own_uniques
        self._host.run(history, self._app.find(name), claim, tells_waiting=tells_waiting, own_uniques=own)

    def blocked(self, id: str, error: Exception, claim: int, carried_ms: int) -> None:
        """Set aside a workflow that this worker claimed and cannot run."""
        self._put_aside(id, error, carried_ms)
        self._host.spawn(partial(self._record_blocked, id, error, claim), id)

    async def _record_blocked(self, id: str, error: Exception, claim: int) -> None:
        """Record that a workflow is blocked; repeat that until it is recorded, or another claim has replaced `claim`."""
        place, pause = records.InstanceStreams(id, self._app.group), pauses()
        while True:
            try:
                await record_blocked(self._host.log, place, error, claim)
            except ClosedError:
                raise
            except Exception as failure:  # noqa: BLE001 - a payload hook of users may raise anything
                log.warning(NOT_RECORDED, id=id, error=repr(failure))
            else:
                return
            await asyncio.sleep(pause.next())

    def record_stuck_elsewhere(self, id: str, error: WorkflowStuck, claim: int) -> None:
        """Record in the calling thread that a workflow is stuck, over a connection of its own: the event loop does not run."""
        opened, place = self._host.log, records.InstanceStreams(id, self._app.group)
        if not isinstance(opened.book, boki.Book):
            return
        client, name = boki.connect_like(opened.book, timeout=ELSEWHERE_S), opened.book.name
        if client is None:
            return

        async def append() -> None:
            async with client:
                await record_blocked(opened.over(client.book(name)), place, error, claim)

        try:
            asyncio.run(append())
        except BokiError as failure:
            log.warning("stuck workflow not recorded: the next worker runs it too", id=id, error=str(failure))

    def _lacking(self, name: str) -> NotRegistered | None:
        """Return the error that this program lacks a workflow; None if it has the workflow."""
        try:
            self._app.find(name)
        except NotRegistered as error:
            return error
        return None

    def _put_aside(self, id: str, error: Exception, carried_ms: int) -> None:
        log.warning("a workflow is blocked", id=id, error=str(error) or repr(error))
        self.aside[id] = carried_ms
        self._host.set_aside(id, error)


async def record_blocked(opened: Log, place: records.InstanceStreams, error: Exception, claim: int) -> None:
    """Record that a workflow is blocked, unless another claim has replaced `claim`, under which it ran here."""
    state = await inspection.newest(opened, place.id)
    call = None if state is None else await inspection.started_call(opened, place.id, state)
    if state is None or call is None or state.claim != claim:
        return
    given_up = Claimed(
        *(place.id, "", 0, call.start, call.name, call.digest, call.group),
        blocked=reason(error),
        own_uniques=state.own_uniques,
    )
    try:
        await opened.append(records.claim(place, given_up, claim, None), settle=True)
    except Conflict:
        return  # another worker has taken it over


def reason(error: Exception) -> str:
    """Return the reason in the claim of a blocked workflow: the name of the error's class, a colon, its text; perhaps a stack."""
    text = f"{type(error).__name__}: {error}"[:REASON_CHARS]
    stack = error.facts.get("stack") if isinstance(error, WorkflowStuck) else None
    if isinstance(error, SET_UP) and error.__traceback__ is not None:
        stack = stack_of(error)
    return f"{text}\n{str(stack)[-STACK_CHARS:]}" if stack else text


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")
