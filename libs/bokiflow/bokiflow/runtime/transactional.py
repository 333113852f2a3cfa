"""Transactions of a store as steps of a workflow: the step's outcome and the objects' changes are one record, so both happen, or neither.

A store is anything that has these methods; `bokistore.BokiStore` has. It is made of the workers' `bokilib.Log`: what commits together
lives in one book. A transaction that meets another one is run again; one whose workflow another worker runs by now is not.

A store that stages transactions (`StagingStore`) runs their bodies itself, and commits them with others of its process, in one record. The
workflow stands still only while its record is put together and sent: a body that takes long runs again outside of that.

A workflow that a transaction calls is a part of it (`family`), if the store is a `SharedStore`: its own transactions are not committed,
they go back to the one that called it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

import boki
from boki_common.errors import BokiError, Conflict, Trimmed
from boki_common.runtime.bodies import interrupted
from bokiflow.cancellation import WorkflowCancelled
from bokiflow.errors import NonDeterminism, UnfitStore
from bokiflow.model import records
from bokiflow.model.flow_events import EnclosingTransaction, Transacted, TransactionPart
from bokiflow.model.outcomes import CANCELLED_OUTCOME, Names, Outcome, failed, succeeded
from bokiflow.model.record_batcher import SHARED_BYTES, size_of, within_bounds
from bokilib.append.log import Log
from bokilib.errors import AppendUnknown, AtomicTooLarge, Fenced
from bokilib.pauses import pauses
from bokilib.records.contribution import Contribution


class StoreTransaction(Protocol):
    """A transaction of a store."""

    def add(self, part: Contribution) -> None:
        """Another library's part of its record."""

    def end(self) -> None:
        """Nothing more is read or written."""


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
    """One that has parts elsewhere, or is one."""

    async def context(self) -> bytes:
        """What a part begins with."""

    def part(self) -> tuple[bytes, bytes]:
        """What this part read, and what it wrote."""

    def take(self, read: bytes, written: bytes) -> None:
        """What a part read and wrote."""


@runtime_checkable
class SharedStore(Protocol):
    """A store whose transactions go across workflows."""

    def within(self, context: bytes, written: Sequence[bytes]) -> SharedTransaction:
        """A part of a transaction, after other parts that wrote this."""


class CommittedTransaction(Protocol[R_co]):
    """A staged transaction that committed."""

    @property
    def seqnum(self) -> int: ...

    @property
    def result(self) -> R_co: ...


class StagedTransaction(Protocol[R_co]):
    """A transaction that a store runs, and that commits with a part of its owner's (`bokistore.Staged`)."""

    async def ran(self) -> R_co:
        """Wait until a run of the body has ended; return what it returned. Raises what it raised: then the transaction has ended."""

    async def commit(self, part: Callable[[R_co], Contribution]) -> CommittedTransaction[R_co] | None:
        """Commit it with the part that is made of what the body returned; return None if the body runs again."""

    async def end(self) -> None:
        """Give it up, unless it is decided."""


@runtime_checkable
class StagingStore(Protocol):
    """A store that commits transactions of its process together."""

    def stage(self, body: Callable[[Any], Awaitable[R]], *, name: str = "") -> StagedTransaction[R]:
        """Run a body until its owner commits it."""


class RunTransaction(NamedTuple):
    """The request to run a transaction, once all that was done before is in the log; or (`within`) a part of one that others commit.

    Attributes:
        losses: how often it lost to others so far. places: names of the modules of its body and of the workflow.
    """

    key: str
    name: str
    store: TransactionalStore[Any]
    body: Callable[[Any], Awaitable[Any]]
    within: EnclosingTransaction | None = None
    losses: int = 0
    places: tuple[Names, ...] = ()


class ReadyTransaction(NamedTuple):
    """A transaction whose body ended, and that wants to commit: one that its store has staged, or else the transaction itself."""

    key: str
    outcome: Outcome
    tx: StoreTransaction | None = None
    staged: StagedTransaction[Outcome] | None = None


class FinishedPart(NamedTuple):
    """A part of a transaction ended, and commits nothing."""

    outcome: Outcome
    part: TransactionPart


class Attempts(Protocol):
    """Who knows what else is a part of a transaction."""

    @property
    def spoiled(self) -> BokiError | None:
        """Why this attempt counts for nothing, whatever its body made of it: another one may succeed, perhaps of another program."""

    def begins(self, tx: StoreTransaction) -> None:
        """What a body calls from here on is a part of it."""

    def ends(self) -> None:
        """Nothing more is."""


class _Raised(Exception):
    """What a body raised, on its way through a store that has errors of its own."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(type(error)))
        self.error = error


async def run(
    command: RunTransaction, log: Log, attempts: Attempts, staged: StagedTransaction[Outcome] | None = None
) -> ReadyTransaction | FinishedPart | Outcome:
    """Run a body against a new snapshot; return the outcome alone, if it raised: then nothing is written.

    Args:
        staged: the store runs it already.
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
        except BaseException as error:  # whatever a body raises is its outcome, but for what the log will do later
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
    """Return how a transaction ended with an error; None: it is run again, later. `places`: see `RunTransaction`.

    Raises:
        NonDeterminism: this program cannot go on with it.
    """
    if isinstance(error, NonDeterminism):
        raise error
    if isinstance(error, WorkflowCancelled):  # what it called was, and it did not mind
        return CANCELLED_OUTCOME
    if isinstance(error, Trimmed) or (isinstance(error, BokiError) and error.retryable):
        return None
    return failed(error, *places)


def _is_cancelled(error: BaseException) -> bool:
    """Return whether the task that runs a body was cancelled, and not a workflow that the body called."""
    return isinstance(error, asyncio.CancelledError) and not isinstance(error, WorkflowCancelled)


def pause_after(seed: str, key: str, losses: int) -> float:
    """Return how many seconds a transaction waits that lost so often in a row: longer each time, and unlike others'."""
    drawn = zlib.crc32(f"{seed}/{key}/{losses}".encode()) / 0xFFFF_FFFF
    longest: float = min(PAUSE_MOST_S, PAUSE_FIRST_S * 2.0 ** min(losses - 1, 16))
    return longest * (0.5 + 0.5 * drawn)


async def _staged(
    command: RunTransaction, store: StagingStore, attempts: Attempts, staged: StagedTransaction[Outcome] | None
) -> ReadyTransaction | Outcome:
    """Have the store run a body. Raises what it raised (`_Raised`), and errors of the log."""

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
    """Check that transactions of a store can be steps of a workflow.

    Args:
        log: of the worker; None: no worker runs the workflow. shared: the workflow is a part of a transaction.

    Raises:
        UnfitStore.
    """
    if log is not None and store.log is not log:
        raise UnfitStore(
            "expected a store of the worker's own Log: log = bokilib.Log(book), BokiStore(log), Worker(app, log)"
        )
    if shared and not isinstance(store, SharedStore):
        raise UnfitStore("expected a store whose transactions go across workflows, as bokistore.BokiStore's do")


async def _part(command: RunTransaction, within: EnclosingTransaction, attempts: Attempts) -> FinishedPart:
    """Run a body where the transaction reads that it is a part of. What it read counts whatever it raised.

    Raises:
        Errors that are retryable: it may be run again.
    """
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
    outcome = within_bounds(outcome, command.name, SHARED_BYTES - min(SHARED_BYTES, size_of([read, written])))
    return FinishedPart(outcome, TransactionPart(read) if outcome.error is not None else TransactionPart(read, written))


async def _body(command: RunTransaction, tx: StoreTransaction, attempts: Attempts) -> Outcome:
    """Return what the body returned. A transaction whose body raised, or was cancelled, has ended."""
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
    """Give up a transaction that wanted to commit."""
    if ran.staged is not None:
        await ran.staged.end()
    elif ran.tx is not None:
        ran.tx.end()


class TransactionCommit:
    """A transaction of a workflow on its way into the log.

    Attributes:
        command, ran: see there. event: what goes into the record for the workflow, of the newest run of the body.
    """

    def __init__(
        self,
        command: RunTransaction,
        ran: ReadyTransaction,
        place: records.InstanceStreams,
        held: Mapping[str, int | None],
        event: Transacted,
    ) -> None:
        """
        Args:
            place, held: of the workflow.
        """
        self.command: Final = command
        self.ran: Final = ran
        self.event = event
        self._place: Final = place
        self._held: Final = held

    def again(self, became: int) -> tuple[RunTransaction, StagedTransaction[Outcome] | None]:
        """Return what begins the next run, after RUN_AGAIN or STORE_RUNS, as `UnderWay.begin` takes it."""
        if became == STORE_RUNS:
            return self.command, self.ran.staged
        return self.command._replace(losses=self.command.losses + 1), None

    def _part(self, outcome: Outcome) -> Contribution:
        """Make the workflow's part of the record: again, if the store runs the body again for it."""
        self.event = msgspec.structs.replace(self.event, outcome=outcome)
        return records.own(self._place, self.event, self._held)

    async def commit(self) -> int | Outcome:
        """Commit it with the workflow's part. Return where it is in the log, or why it never can be; else RUN_AGAIN (run it anew), PARK
        (another worker runs the workflow) or STORE_RUNS (its store runs it again: `end` it if the workflow was stopped here meanwhile).

        Raises:
            Errors of the log: the outcome is unknown.
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
        """Decide by whose expectation failed: that of the workflow's fence, or one of the data."""
        return PARK if self.command.store.log.moved(self._held, conflict) else RUN_AGAIN
