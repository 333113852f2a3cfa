"""Transactions of a store as steps of a workflow: the step's outcome and the objects' changes are one record, so both happen, or neither.

A store is whatever has these methods; `bokistore.BokiStore` does. It is made of the workers' `bokilib.Log`: what commits together
lives in one book. A transaction that meets another one is run again; one whose workflow is somebody else's by now is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from boki_common.errors import BokiError, Conflict, InvalidArgument, Trimmed
from bokiflow.body import within_bounds
from bokiflow.outcomes import Outcome, failed, succeeded
from bokilib.contribution import Contribution
from bokilib.errors import AppendUnknown
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


class RunTransaction(NamedTuple):
    """A transaction shall run, once all that was done before is in the log."""

    key: str
    name: str
    store: TransactionalStore[Any]
    body: Callable[[Any], Awaitable[Any]]


class Ran(NamedTuple):
    """A transaction's body ended, and wants to commit."""

    key: str
    tx: StoreTransaction
    outcome: Outcome


async def run(ask: RunTransaction, log: Log) -> Ran | Outcome:
    """Runs a body against a new snapshot; the outcome alone, if it raised: then nothing is written."""
    if ask.store.log is not log:
        return failed(
            InvalidArgument(
                "expected a store of the worker's own Log: log = bokilib.Log(book), BokiStore(log), Worker(app, log)"
            )
        )
    pause = pauses()
    while True:
        try:
            tx = await ask.store.begin()
            outcome = await _body(ask, tx)
            break
        except Exception as error:  # noqa: BLE001 - whatever a body raises is its outcome, but for what the log will do later
            if not isinstance(error, Trimmed) and not (isinstance(error, BokiError) and error.retryable):
                return failed(error)
        await asyncio.sleep(pause.next())
    if outcome.error is not None:
        tx.end()
        return outcome
    return Ran(ask.key, tx, outcome)


async def _body(ask: RunTransaction, tx: StoreTransaction) -> Outcome:
    """What the body returned; a transaction whose body raised, or was cancelled, is over."""
    try:
        return within_bounds(succeeded(await ask.body(tx)), ask.name)
    except BaseException:
        tx.end()
        raise


AGAIN: Final = "again"
PARK: Final = "park"


async def commit(ask: RunTransaction, ran: Ran, part: Contribution) -> str:
    """Commits a transaction with the workflow's part. Returns "" when it is in the log, else AGAIN or PARK.

    Raises:
        Errors of the log, when nobody can say what became of it.
    """
    ran.tx.add(part)
    try:
        await ask.store.commit(ran.tx)
    except Conflict as conflict:
        return _after(ask, part, conflict)
    except AppendUnknown as unknown:
        known = await unknown.outcome()
        if isinstance(known, Conflict):
            return _after(ask, part, known)
        return "" if hasattr(known, "seqnum") else AGAIN
    return ""


def _after(ask: RunTransaction, part: Contribution, conflict: Conflict) -> str:
    """Whose expectation failed: that of the workflow's fence, or one of the data."""
    return PARK if ask.store.log.news(part.expect, conflict) else AGAIN
