"""Transactions of a store as steps of a workflow: the outcome of the step and the changes of objects are one record.

A store is any class with these methods, such as `bokistore.BokiStore`, over the `bokilib.Log` of the worker: a commit is a record of one
book. A transaction that loses a conflict runs again, unless another worker runs the workflow by then.

A store that stages transactions (`StagingStore`) runs their bodies itself and commits them with others of its process, in one record. The
workflow stands still only while its record is composed and appended; a body that takes long runs again outside of that.

If the store is a `SharedStore`, a workflow that a transaction calls is a part of the transaction: its own transactions are not committed,
but returned to the caller (`TransactionParts`).

- A part begins with the context of the transaction and with all writes of earlier parts. So parts run one after the other.
- If the workflow fails, its reads count for the transaction, and its writes do not.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

import boki
from boki_common.errors import BokiError, Conflict, InvalidArgument, Trimmed
from boki_common.interruption import interrupted
from bokiflow.cancellation import WorkflowCancelled
from bokiflow.errors import NonDeterminism, UnfitStore
from bokiflow.model import records
from bokiflow.model.flow_events import EnclosingTransaction, Transacted, TransactionPart
from bokiflow.model.outcomes import CANCELLED_OUTCOME, Names, Outcome, failed, succeeded
from bokiflow.model.record_batcher import SHARED_BYTES, size_of, too_large, within_bounds
from bokilib.append.log import Log
from bokilib.errors import AppendUnknown, AtomicTooLarge, Fenced
from bokilib.pauses import pauses
from bokilib.records.contribution import Contribution

ONE_PART: Final = (
    "expected one part of a transaction at a time, found two at once: await each before the next, "
    "or move what runs at once out of the transaction"
)


class TransactionParts:
    """The parts that one workflow adds to the transaction around it.

    Attributes:
        under_way: True while a part runs.
    """

    def __init__(self, within: EnclosingTransaction | None) -> None:
        """`within`: the transaction that the workflow is a part of; None if there is none."""
        self.under_way = False
        self._within: Final = within
        self._done: Final[list[TransactionPart]] = []

    def add(self, several: Iterable[TransactionPart]) -> None:
        self._done.extend(several)

    def next(self) -> EnclosingTransaction | None:
        """Return what the next part begins with; None if the workflow is in no transaction.

        Raises:
            InvalidArgument: another part is under way.
        """
        if self._within is None:
            return None
        if self.under_way:
            raise InvalidArgument(ONE_PART)
        return EnclosingTransaction(self._within.context, (*self._within.parts, *self._done))

    def for_caller(self, *, failed: bool) -> tuple[TransactionPart, ...]:
        """Return the parts that the transaction gets when the workflow ends."""
        return tuple(TransactionPart(one.read) if failed else one for one in self._done)


class StoreTransaction(Protocol):
    """A transaction of a store."""

    def add(self, part: Contribution) -> None:
        """Add the contribution of another library to its record."""

    def end(self) -> None:
        """End the transaction without a commit."""


TX = TypeVar("TX", bound=StoreTransaction)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TransactionalStore(Protocol[TX]):
    """A store that begins and commits transactions."""

    @property
    def log(self) -> Log: ...

    async def begin(self) -> TX: ...

    async def commit(self, tx: TX) -> int: ...


class SharedTransaction(StoreTransaction, Protocol):
    """A transaction that has parts in other workflows, or is such a part."""

    async def context(self) -> bytes:
        """Return the state that a part begins with."""

    def part(self) -> tuple[bytes, bytes]:
        """Return the reads and the writes of this part."""

    def take(self, read: bytes, written: bytes) -> None:
        """Add the reads and the writes of a part."""


@runtime_checkable
class SharedStore(Protocol):
    """A store whose transactions have parts in several workflows."""

    def within(self, context: bytes, written: Sequence[bytes]) -> SharedTransaction:
        """Begin a part of a transaction, after the writes of earlier parts."""


class CommittedTransaction(Protocol[R_co]):
    """A staged transaction that committed."""

    @property
    def seqnum(self) -> int: ...

    @property
    def result(self) -> R_co: ...


class StagedTransaction(Protocol[R_co]):
    """A transaction that a store runs, and that commits with a contribution of its owner (`bokistore.Staged`)."""

    async def ran(self) -> R_co:
        """Wait for the end of a run of the body; return its result. An error of the body is raised, and ends the transaction."""

    async def commit(self, part: Callable[[R_co], Contribution]) -> CommittedTransaction[R_co] | None:
        """Commit with a contribution made from the result of the body; return None if the body runs again."""

    async def end(self) -> None:
        """Abort, unless the commit is decided."""


@runtime_checkable
class StagingStore(Protocol):
    """A store that commits transactions of its process in one record."""

    def stage(self, body: Callable[[Any], Awaitable[R]], *, name: str = "") -> StagedTransaction[R]:
        """Run a body until its owner commits it."""


class RunTransaction(NamedTuple):
    """The command to run a transaction, once all earlier effects are in the log.

    Attributes:
        within: the transaction of another workflow that this is a part of; None if there is none.
        losses: how many times it lost to other transactions.
        places: the global names of its body and of the workflow, in which classes of errors are looked up.
    """

    key: str
    name: str
    store: TransactionalStore[Any]
    body: Callable[[Any], Awaitable[Any]]
    within: EnclosingTransaction | None = None
    losses: int = 0
    places: tuple[Names, ...] = ()


class ReadyTransaction(NamedTuple):
    """A transaction whose body has ended, ready to commit: `staged` if its store runs it, else `tx`."""

    key: str
    outcome: Outcome
    tx: StoreTransaction | None = None
    staged: StagedTransaction[Outcome] | None = None


class FinishedPart(NamedTuple):
    """A part of another workflow's transaction that has ended; it commits nothing itself."""

    outcome: Outcome
    part: TransactionPart


class Attempts(Protocol):
    """The attempts of a transaction, which own the children that its body calls."""

    @property
    def spoiled(self) -> BokiError | None:
        """The error that voids this attempt, even if the body caught it; a later attempt may succeed."""

    def begins(self, tx: StoreTransaction) -> None:
        """Begin an attempt: workflows that the body calls are parts of it."""

    def ends(self) -> None:
        """End the attempt."""


class _Raised(Exception):
    """The error of a body, wrapped so that it differs from errors of the store that runs the body."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(type(error)))
        self.error = error


async def run(
    command: RunTransaction, log: Log, attempts: Attempts, staged: StagedTransaction[Outcome] | None = None
) -> ReadyTransaction | FinishedPart | Outcome:
    """Run a body against a new snapshot. Return an Outcome if it raised; then nothing is written.

    `staged`: the transaction, if the store runs it already.
    """
    pause = pauses()
    if command.losses and staged is None:
        await asyncio.sleep(pause_after(log.by, command.key, command.losses))
    while True:
        try:
            if command.within is not None:
                return await _part(command, command.within, attempts)
            if isinstance(command.store, StagingStore):
                return await _staged(command, command.store, attempts, staged)
            tx = await command.store.begin()
            outcome = await _body(command, tx, attempts)
            break
        except BaseException as error:  # errors of the body are its outcome; errors of the log are retried
            if interrupted(error) or _is_cancelled(error):
                raise
            ended = outcome_of(error.error if isinstance(error, _Raised) else error, command.places)
            if ended is not None:
                return ended
        staged = None
        await asyncio.sleep(pause.next())
    if outcome.error is not None:
        tx.end()
        return outcome
    return ReadyTransaction(command.key, outcome, tx)


def outcome_of(error: BaseException, places: tuple[Names, ...]) -> Outcome | None:
    """Return the outcome of a transaction that raised an error; None if it is retried. Raises NonDeterminism, which blocks the workflow."""
    if isinstance(error, NonDeterminism):
        raise error
    if isinstance(error, WorkflowCancelled):  # a workflow that it called was cancelled
        return CANCELLED_OUTCOME
    if isinstance(error, Trimmed) or (isinstance(error, BokiError) and error.retryable):
        return None
    return failed(error, *places)


def _is_cancelled(error: BaseException) -> bool:
    """Return True if the task of the body was cancelled, and not a workflow that the body called."""
    return isinstance(error, asyncio.CancelledError) and not isinstance(error, WorkflowCancelled)


def pause_after(seed: str, key: str, losses: int) -> float:
    """Return the pause in seconds of a transaction that lost several times in a row: it grows, and differs between transactions."""
    drawn = zlib.crc32(f"{seed}/{key}/{losses}".encode()) / 0xFFFF_FFFF
    longest: float = min(PAUSE_MOST_S, PAUSE_FIRST_S * 2.0 ** min(losses - 1, 16))
    return longest * (0.5 + 0.5 * drawn)


async def _staged(
    command: RunTransaction, store: StagingStore, attempts: Attempts, staged: StagedTransaction[Outcome] | None
) -> ReadyTransaction | Outcome:
    """Have the store run a body. Raises errors of the log, and those of the body as `_Raised`."""

    async def body(tx: StoreTransaction) -> Outcome:
        try:
            return await _body(command, tx, attempts)
        except BaseException as error:
            if interrupted(error) or _is_cancelled(error):
                raise
            raise _Raised(error) from error

    if staged is None:
        staged = store.stage(body, name=command.name)
    try:
        outcome = await staged.ran()
    except asyncio.CancelledError:
        await staged.end()
        raise
    if outcome.error is not None:
        await staged.end()
        return outcome
    return ReadyTransaction(command.key, outcome, staged=staged)


def check_store(store: TransactionalStore[Any], log: Log | None, *, shared: bool) -> None:
    """Raise UnfitStore if transactions of a store cannot be steps of a workflow.

    Args:
        log: the log of the worker; None if no worker runs the workflow.
        shared: True if the workflow is a part of a transaction.
    """
    if log is not None and getattr(store, "log", None) is not log:
        raise UnfitStore(
            "expected a store of the worker's own Log: log = bokilib.Log(book), BokiStore(log), Worker(app, log)"
        )
    if shared and not isinstance(store, SharedStore):
        raise UnfitStore("expected a store whose transactions go across workflows, as bokistore.BokiStore's do")


async def _part(command: RunTransaction, within: EnclosingTransaction, attempts: Attempts) -> FinishedPart:
    """Run a body as a part of a transaction. Its reads count even if it raises. Raises retryable errors: then it may run again."""
    assert isinstance(command.store, SharedStore)
    tx = command.store.within(within.context, [part.written for part in within.parts])
    try:
        outcome = await _body(command, tx, attempts)
    except WorkflowCancelled:
        outcome = CANCELLED_OUTCOME
    except (asyncio.CancelledError, NonDeterminism):
        raise
    except BaseException as error:
        if interrupted(error) or (isinstance(error, BokiError) and error.retryable and not isinstance(error, Trimmed)):
            raise
        outcome = failed(error, *command.places)
    tx.end()
    read, written = tx.part()
    size = size_of([read, written])
    if size > SHARED_BYTES:
        what = f"reads and writes of transaction {command.name!r} across workflows"
        outcome = failed(too_large(what, size, SHARED_BYTES, "read and write less in it"))
    else:
        outcome = within_bounds(outcome, command.name, SHARED_BYTES - size)
    return FinishedPart(outcome, TransactionPart(read) if outcome.error is not None else TransactionPart(read, written))


async def _body(command: RunTransaction, tx: StoreTransaction, attempts: Attempts) -> Outcome:
    """Return the outcome of the body. If it raises or is cancelled, the transaction ends."""
    attempts.begins(tx)
    try:
        outcome = await _returned(command, tx, attempts)
    except BaseException:
        tx.end()
        raise
    finally:
        attempts.ends()
    return outcome


async def _returned(command: RunTransaction, tx: StoreTransaction, attempts: Attempts) -> Outcome:
    try:
        outcome = within_bounds(succeeded(await command.body(tx)), command.name)
    except BaseException as error:
        if attempts.spoiled is None or attempts.spoiled is error or interrupted(error) or _is_cancelled(error):
            raise
        raise attempts.spoiled from error
    if attempts.spoiled is not None:
        raise attempts.spoiled
    return outcome


PAUSE_FIRST_S: Final = 0.002
PAUSE_MOST_S: Final = 1.0

RUN_AGAIN: Final = 0
PARK: Final = -1
STORE_RUNS: Final = -2


async def end(ran: ReadyTransaction) -> None:
    """Abort a transaction that is ready to commit."""
    if ran.staged is not None:
        await ran.staged.end()
    elif ran.tx is not None:
        ran.tx.end()


class TransactionCommit:
    """The commit of a workflow's transaction.

    Attributes:
        event: the workflow's event in the record, from the newest run of the body.
    """

    def __init__(
        self,
        command: RunTransaction,
        ran: ReadyTransaction,
        place: records.InstanceStreams,
        held: Mapping[str, int | None],
        event: Transacted,
    ) -> None:
        """`place`, `held`: the streams and the claim of the workflow."""
        self.command: Final = command
        self.ran: Final = ran
        self.event = event
        self._place: Final = place
        self._held: Final = held

    def again(self, became: int) -> tuple[RunTransaction, StagedTransaction[Outcome] | None]:
        """Return the arguments of `RunningTasks.begin` for the next run, after RUN_AGAIN or STORE_RUNS."""
        if became == STORE_RUNS:
            return self.command, self.ran.staged
        return self.command._replace(losses=self.command.losses + 1), None

    def _part(self, outcome: Outcome) -> Contribution:
        """Return the workflow's contribution; a store that runs the body again calls this again."""
        self.event = msgspec.structs.replace(self.event, outcome=outcome)
        return records.worker_event(self._place, self.event, self._held)

    async def commit(self) -> int | Outcome:
        """Commit with the workflow's contribution. Errors of the log, after which the outcome is unknown, are raised.

        Returns:
            The seqnum of the record, or the outcome of a transaction that can never commit. RUN_AGAIN: the transaction lost. PARK: another
            worker runs the workflow. STORE_RUNS: the store runs the body again; `end` it if the workflow was stopped here meanwhile.
        """
        command, ran = self.command, self.ran
        try:
            if ran.staged is not None:
                committed = await ran.staged.commit(self._part)
                return STORE_RUNS if committed is None else committed.seqnum
            assert ran.tx is not None, "a transaction is staged, or here"
            ran.tx.add(self._part(ran.outcome))
            return await command.store.commit(ran.tx)
        except _Raised as raised:
            return outcome_of(raised.error, self.command.places) or RUN_AGAIN
        except Fenced as fenced:
            return self._after(Conflict(str(fenced), **fenced.facts))
        except Conflict as conflict:
            return self._after(conflict)
        except AppendUnknown as unknown:
            known = await unknown.outcome()
            if isinstance(known, Conflict):
                return self._after(known)
            return known.seqnum if isinstance(known, boki.Committed) else RUN_AGAIN
        except AtomicTooLarge as error:
            return failed(error)
        except BokiError as error:
            if ran.staged is None or not error.definite:
                raise
            return outcome_of(error, self.command.places) or RUN_AGAIN

    def _after(self, conflict: Conflict) -> int:
        """Return PARK if the expectation of the workflow's fence failed, RUN_AGAIN if one of the data did."""
        return PARK if self.command.store.log.moved(self._held, conflict) else RUN_AGAIN
