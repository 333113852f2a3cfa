"""Transactions of a store as steps of a workflow: the step's outcome and the objects' changes are one record, so both happen, or neither.

A store is whatever has these methods; `bokistore.BokiStore` does. It is made of the workers' `bokilib.Log`: what commits together
lives in one book. A transaction that meets another one is run again; one whose workflow is somebody else's by now is not.

A workflow that a transaction calls is a part of it (`family`), if the store is a `SharedStore`: its own transactions are not committed,
they go back to the one that called it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import boki
from boki_common.errors import BokiError, Conflict, InvalidArgument, Trimmed
from bokiflow.body import within_bounds
from bokiflow.cancellation import WorkflowCancelled
from bokiflow.flow_events import Part, Within
from bokiflow.flush import SHARED_BYTES, size_of
from bokiflow.outcomes import CANCELLED_OUTCOME, Outcome, failed, succeeded
from bokilib.contribution import Contribution
from bokilib.errors import AppendUnknown, AtomicTooLarge
from bokilib.log import Log
from bokilib.pauses import pauses


class StoreTransaction(Protocol):
    """A transaction of a store."""

    def add(self, part: Contribution) -> None:
        """Another library's part of its record."""

    def end(self) -> None:
        """Nothing more is read or written."""


TX = TypeVar("TX", bound=StoreTransaction)


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


class RunTransaction(NamedTuple):
    """A transaction shall run, once all that was done before is in the log; or (`within`) a part of one that others commit."""

    key: str
    name: str
    store: TransactionalStore[Any]
    body: Callable[[Any], Awaitable[Any]]
    within: Within | None = None


class Ran(NamedTuple):
    """A transaction's body ended, and wants to commit."""

    key: str
    tx: StoreTransaction
    outcome: Outcome


class RanPart(NamedTuple):
    """A part of a transaction ended, and commits nothing."""

    outcome: Outcome
    part: Part


class Attempts(Protocol):
    """Who knows what else is a part of a transaction."""

    @property
    def spoiled(self) -> BokiError | None:
        """Why this attempt counts for nothing, whatever its body made of it: another one may succeed."""

    def begins(self, tx: StoreTransaction) -> None:
        """What a body calls from here on is a part of it."""

    def ends(self) -> None:
        """Nothing more is."""


async def run(ask: RunTransaction, log: Log, attempts: Attempts) -> Ran | RanPart | Outcome:
    """Runs a body against a new snapshot; the outcome alone, if it raised: then nothing is written."""
    fault = _fault(ask, log)
    if fault is not None:
        return failed(fault)
    pause = pauses()
    while True:
        try:
            if ask.within is not None:
                return await _part(ask, ask.within, attempts)
            tx = await ask.store.begin()
            outcome = await _body(ask, tx, attempts)
            break
        except WorkflowCancelled:  # what it called was, and it did not mind
            return CANCELLED_OUTCOME
        except Exception as error:  # noqa: BLE001 - whatever a body raises is its outcome, but for what the log will do later
            if not isinstance(error, Trimmed) and not (isinstance(error, BokiError) and error.retryable):
                return failed(error)
        await asyncio.sleep(pause.next())
    if outcome.error is not None:
        tx.end()
        return outcome
    return Ran(ask.key, tx, outcome)


def _fault(ask: RunTransaction, log: Log) -> InvalidArgument | None:
    if ask.store.log is not log:
        return InvalidArgument(
            "expected a store of the worker's own Log: log = bokilib.Log(book), BokiStore(log), Worker(app, log)"
        )
    if ask.within is not None and not isinstance(ask.store, SharedStore):
        return InvalidArgument("expected a store whose transactions go across workflows, as bokistore.BokiStore's do")
    return None


async def _part(ask: RunTransaction, within: Within, attempts: Attempts) -> RanPart:
    """Runs a body where the transaction reads that it is a part of. What it read counts whatever it raised.

    Raises:
        Errors that are retryable: it may be run again.
    """
    assert isinstance(ask.store, SharedStore)
    tx = ask.store.within(within.context, [part.written for part in within.parts])
    try:
        outcome = await _body(ask, tx, attempts)
    except WorkflowCancelled:
        outcome = CANCELLED_OUTCOME
    except Exception as error:
        if isinstance(error, BokiError) and error.retryable and not isinstance(error, Trimmed):
            raise
        outcome = failed(error)
    tx.end()
    read, written = tx.part()
    outcome = within_bounds(outcome, ask.name, SHARED_BYTES - min(SHARED_BYTES, size_of([read, written])))
    return RanPart(outcome, Part(read) if outcome.error is not None else Part(read, written))


async def _body(ask: RunTransaction, tx: StoreTransaction, attempts: Attempts) -> Outcome:
    """What the body returned; a transaction whose body raised, or was cancelled, is over."""
    attempts.begins(tx)
    try:
        outcome = await _returned(ask, tx, attempts)
    except BaseException:
        tx.end()
        raise
    finally:
        attempts.ends()
    return outcome


async def _returned(ask: RunTransaction, tx: StoreTransaction, attempts: Attempts) -> Outcome:
    try:
        outcome = within_bounds(succeeded(await ask.body(tx)), ask.name)
    except Exception as error:
        if attempts.spoiled is None or attempts.spoiled is error:
            raise
        raise attempts.spoiled from error
    if attempts.spoiled is not None:
        raise attempts.spoiled
    return outcome


AGAIN: Final = 0
PARK: Final = -1


async def commit(ask: RunTransaction, ran: Ran, part: Contribution) -> int | Outcome:
    """Commits a transaction with the workflow's part. Returns where it is in the log, else AGAIN or PARK; or why it never can be.

    Raises:
        Errors of the log: the outcome is unknown.
    """
    ran.tx.add(part)
    try:
        return await ask.store.commit(ran.tx)
    except Conflict as conflict:
        return _after(ask, part, conflict)
    except AppendUnknown as unknown:
        known = await unknown.outcome()
        if isinstance(known, Conflict):
            return _after(ask, part, known)
        return known.seqnum if isinstance(known, boki.Committed) else AGAIN
    except AtomicTooLarge as error:
        return failed(error)


def _after(ask: RunTransaction, part: Contribution, conflict: Conflict) -> int:
    """Whose expectation failed: that of the workflow's fence, or one of the data."""
    return PARK if ask.store.log.moved(part.expect, conflict) else AGAIN
