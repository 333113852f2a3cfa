"""Workflows that the body of a transaction calls. Each is a child, and a part of that attempt of the transaction.

    async def book(tx: Transaction, hotel: str) -> str:
        room = await reserve(hotel)        # a workflow, perhaps on another machine; what it transacts is staged, and comes back here
        tx["trips"].inc("booked")
        return room

- A part begins with the snapshot of the transaction and the writes in it so far, and reads there. Its own reads and writes return with
  its end, as data. The record that commits the transaction has all writes, and expects all reads, of every part.
- A part belongs to one attempt; a later attempt calls parts of its own. A part that nothing waits for is cancelled by a record that also
  says so in the history of the calling workflow (`Abandoned`). This record comes before a later attempt, and before the end of the
  transaction and of the workflow; both wait for starts of parts that are being appended. A worker that takes the workflow over does the
  same for all parts that its history does not account for (`delivery_order.parts_left`), which are none of transactions that have ended.
  So no part outlives its attempt because a worker died or an append failed.
- Parts run one after the other, so each sees the writes of those before it. A part begins once the abandoned parts of its transaction have
  ended, since they hold their locks until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import Token
from functools import partial
from typing import Any, Final

import msgspec

from boki_common.errors import BokiError, Conflict, InvalidArgument, LogBookError, Trimmed
from boki_common.logs import NAMED, get_logger
from bokiflow.cancellation import WorkflowCancelled
from bokiflow.execute.record_builder import ABANDONED
from bokiflow.execute.worker_host import WorkerHost
from bokiflow.history import inspection
from bokiflow.model import records
from bokiflow.model.flow_events import Attempted, Cancelled, EnclosingTransaction, Ended, Started
from bokiflow.model.outcomes import Failure, cancellation_text, digest, error_of, lost_class, missing_class, unfit_value
from bokiflow.runtime.calls import IN_TRANSACTION, Caller, Workflow, names_of
from bokiflow.runtime.transactional import ONE_PART, RunTransaction, SharedStore, SharedTransaction, StoreTransaction
from bokilib.errors import AppendUnknown
from bokilib.records.contribution import Contribution, joined

CANCELLED_AT_ONCE: Final = 60
"""Children that one record cancels: it joins two streams for each."""
WAIT_S: Final = 5.0
"""Bound of waiting for the ends of abandoned parts within an attempt, whose time a store bounds."""
ABANDONED_S: Final = 60.0
"""Bound of waiting for the ends of abandoned parts in all: a blocked one has none."""

log = get_logger(__name__)


class AttemptMoved(LogBookError):
    """The claim that an attempt was made under was replaced. The attempt is repeated if this process has a newer claim by then."""

    retryable = True
    definite = True


class PartsRunning(LogBookError):
    """Abandoned parts of the transaction have not ended yet, so they may hold locks. The attempt is repeated."""

    retryable = True
    definite = True


class CalledParts:
    """The parts that transactions of a workflow called under one claim, until they are accounted for.

    A part is accounted for when its end was read, or when it is abandoned: then `abandon` is called with it. A part whose start is being
    appended is abandoned when the outcome of the start is known, since a cancellation that is ordered before the start has no effect.

    Attributes:
        abandoned: abandoned parts that may still run, of transactions that have not ended, by key: when each was abandoned, by id.
    """

    def __init__(self, abandon: Callable[[Attempted], None], decided: Callable[[], None]) -> None:
        """Begin with no parts.

        Args:
            abandon: cancels a part.
            decided: called when the outcome of a start is known.
        """
        self._abandon: Final = abandon
        self._on_decided: Final = decided
        self._open: Final[dict[str, Attempted]] = {}
        self._starts: Final[dict[str, asyncio.Task[int]]] = {}
        self._leaving: Final[dict[str, None]] = {}
        """Parts to abandon when the outcomes of their starts are known."""
        self.abandoned: Final[dict[str, dict[str, float]]] = {}

    @property
    def undecided(self) -> bool:
        """True while a start is being appended."""
        return bool(self._starts)

    @property
    def running(self) -> list[str]:
        """Ids of the parts that may still run: not accounted for, or abandoned."""
        return [*self._open, *(id for parts in self.abandoned.values() for id in parts)]

    async def begin(self, part: Attempted, start: Coroutine[Any, Any, int]) -> int:
        """Start a part, also if the caller is cancelled meanwhile; return the seqnum of its start."""
        self._open[part.child] = part
        self._starts[part.child] = starting = asyncio.get_running_loop().create_task(start, name="bokiflow part")
        starting.add_done_callback(partial(self._decided, part.child))
        return await asyncio.shield(starting)

    def _decided(self, child: str, starting: asyncio.Task[int]) -> None:
        del self._starts[child]
        if starting.cancelled() or starting.exception() is not None:
            self._open.pop(child, None)
        if self._leaving.pop(child, "") is None:
            self.leave(child)
        self._on_decided()

    async def decided(self, key: str) -> None:
        """Wait until the outcomes of all starts of a transaction's parts are known."""
        while starting := [one for child, one in self._starts.items() if self._open[child].key == key]:
            await asyncio.wait(starting)

    def ended(self, child: str) -> None:
        """Note that the end of a part was read."""
        self._open.pop(child, None)

    def leave(self, child: str) -> None:
        """Abandon a part, unless it is accounted for."""
        if child in self._starts:
            self._leaving[child] = None
        elif child in self._open:
            self.abandon(self._open.pop(child))

    def abandon(self, part: Attempted) -> None:
        """Abandon a part that is not accounted for, of this claim or an earlier one."""
        self.abandoned.setdefault(part.key, {})[part.child] = asyncio.get_running_loop().time()
        self._abandon(part)

    def leave_all(self, key: str) -> None:
        """Abandon the parts that a transaction called."""
        for child in [child for child, part in self._open.items() if part.key == key]:
            self.leave(child)

    def stop(self) -> list[asyncio.Task[Any]]:
        """Cancel and return the starts that are being appended. The next claim of the workflow accounts for its parts."""
        for starting in self._starts.values():
            starting.cancel()
        return list(self._starts.values())


class TransactionChildren:
    """The children of one transaction's body.

    Attributes:
        spoiled: see `transactional.Attempts`.
    """

    def __init__(
        self,
        host: WorkerHost,
        started: Started,
        age: int,
        command: RunTransaction,
        held: Mapping[str, int | None],
        moved: Callable[[Mapping[str, int | None]], None],
        called: CalledParts,
    ) -> None:
        """Prepare for the attempts of a transaction.

        Args:
            host: the worker.
            started: the workflow whose transaction it is.
            age: the seqnum at which the root of its family began.
            command: the command.
            held: the claim of the workflow, which a checkpoint replaces.
            moved: called with a claim that turned out to be replaced, or that an append of unknown outcome expected.
            called: the parts of the workflow's transactions.
        """
        self._called: Final = called
        self._host: Final = host
        self._started: Final = started
        self._age: Final = age
        self._command: Final = command
        self._held: Final = held
        self._moved: Final = moved
        self._tx: SharedTransaction | None = None
        self._attempt = ""
        self._count = 0
        self._busy = False
        self.spoiled: BokiError | None = None
        self._token: Token[Caller | None] | None = None

    # -- transactional.Attempts

    def begins(self, tx: StoreTransaction) -> None:
        """See `transactional.Attempts`."""
        if isinstance(self._command.store, SharedStore):
            self._tx = tx  # type: ignore[assignment]  # what such a store gives is one
            self._attempt, self._count, self.spoiled = self._host.token(), 0, None
            self._token = IN_TRANSACTION.set(self)

    def ends(self) -> None:
        """See `transactional.Attempts`."""
        self._tx = None
        self._called.leave_all(self._command.key)
        if self._token is not None:
            IN_TRANSACTION.reset(self._token)
            self._token = None

    # -- calls.Caller

    async def run_child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """See `calls.Caller`."""
        tx = self._tx
        if tx is None:
            raise InvalidArgument(f"expected workflow {workflow.name!r} to be called while its transaction runs")
        if self._busy:
            raise InvalidArgument(ONE_PART)
        stored = workflow.signature.encode(args, options)
        self._busy = True
        try:
            await self._wait_for_abandoned()
            context = await tx.context()
            if self._tx is not tx:
                raise InvalidArgument(f"expected workflow {workflow.name!r} to be called while its transaction runs")
            ended = await self._call(workflow, stored, context)
        except BokiError as error:
            self._spoil(error)
            raise
        finally:
            self._busy = False
        for part in ended.parts:
            tx.take(part.read, part.written)
        if ended.outcome.cancelled:
            raise WorkflowCancelled(cancellation_text(ended.id, ended.outcome))
        if ended.outcome.error is not None:
            raise self._raised(workflow, ended.id, ended.outcome.error)
        try:
            return workflow.signature.result(ended.outcome.value)
        except Exception as fault:
            what = f"the result of child {workflow.name!r} ({ended.id})"
            self.spoiled = found = unfit_value(fault, what, self._started.id, self._started.name)
            raise found from fault

    async def _wait_for_abandoned(self) -> None:
        """Wait until abandoned parts of this transaction have ended: a part that is called now may need their locks.

        Raises:
            PartsRunning: they did not end soon, so that the attempt is repeated. After `ABANDONED_S` nothing waits for them any more.
        """
        parts = self._called.abandoned.get(self._command.key)
        if not parts:
            return
        try:
            async with asyncio.timeout(WAIT_S):
                for id in list(parts):
                    await self._end_of(id)
                    parts.pop(id, None)
        except TimeoutError:
            if asyncio.get_running_loop().time() < min(parts.values()) + ABANDONED_S:
                raise PartsRunning("abandoned parts of the transaction have not ended yet") from None
            log.warning("abandoned parts of a transaction run on", id=self._started.id, parts=list(parts)[:NAMED])
            parts.clear()

    async def _end_of(self, id: str) -> None:
        state = await inspection.newest(self._host.log, id)
        if state is not None and state.ended is None:
            await self._host.end_of(id, 0)

    def _raised(self, workflow: Workflow[..., Any], id: str, error: Failure) -> Exception:
        """Return the error that a child ended with. If its class is missing here, the attempt ends with NonDeterminism in any case."""
        places = names_of(workflow.function), *self._command.places[1:]
        lost = missing_class(error, *places)
        if lost is not None:
            what = f"child {workflow.name!r} ({id})"
            self.spoiled = found = lost_class(lost, what, self._started.id, self._started.name, *places)
            return found
        made = error_of(error, *places)
        self._spoil(made)
        return made

    def _spoil(self, error: BaseException) -> None:
        """Let an error decide about the attempt if a repeated attempt may not have it, whatever the body does with it."""
        if isinstance(error, Trimmed) or (isinstance(error, BokiError) and error.retryable):
            self.spoiled = error

    async def _call(self, workflow: Workflow[..., Any], stored: Any, context: bytes) -> Ended:
        self._count += 1
        key, parent = self._command.key, self._started
        id = f"{parent.id}/{key}~{self._attempt}:{self._count}"
        child = Started(
            id,
            workflow.name,
            digest(stored),
            stored,
            self._host.log.now_ms(),
            version=workflow.version,
            group=parent.group,
            parent=parent.id,
            traceparent=self._host.spans.child(parent.id, workflow.name, id, parent.traceparent, detached=False),
            age=self._age,
            within=EnclosingTransaction(context),
            own_uniques=True,
        )
        noted = Attempted(parent.id, key, self._attempt, id, child.name, child.at_ms)
        try:
            ended = await self._host.end_of(id, await self._called.begin(noted, self._start(child, noted)))
        except asyncio.CancelledError:  # the body does not wait any more
            self._called.leave(id)
            raise
        self._called.ended(id)
        return ended

    async def _start(self, child: Started, noted: Attempted) -> int:
        """Start a part; return the seqnum of that."""
        place, own = (
            records.InstanceStreams(child.id, child.group),
            records.InstanceStreams(self._started.id, self._started.group),
        )
        while True:
            owner, claim = self._host.owner_of(child.id)
            mine = msgspec.structs.replace(child, owner=owner)
            held = dict(self._held)
            part = joined([records.start(mine, claim), records.worker_event(own, noted, held)])
            try:
                unanswered = partial(self._host.unsure, child.id)
                seqnum = await self._host.log.append(part, settle=True, unanswered=unanswered)
            except Conflict as conflict:
                moved = self._host.log.moved(part.expect, conflict)
                if own.fence in moved:
                    self._moved(held)
                    raise AttemptMoved(f"workflow {own.id!r} was claimed anew") from conflict
                if place.partition_owner not in moved:
                    raise
                self._host.lost(place.partition, claim)
                continue
            except AppendUnknown:  # the next claim of the workflow decides whether it is in the log
                self._moved(held)
                raise
            if owner:
                self._host.began(mine, seqnum)
            return seqnum


def cancelling(group: str, ids: Iterable[str]) -> Contribution:
    """Return the record that cancels parts, without a word in the history of the calling workflow."""
    return joined(records.send(records.InstanceStreams(id, group), Cancelled(id, ABANDONED)) for id in ids)
