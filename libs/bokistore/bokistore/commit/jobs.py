"""Transactions that wait to commit together (`group_commit`), among them staged ones, whose owner decides when they commit."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from boki_common.runtime import confined
from bokilib.ports import ConsistencyName
from bokilib.records.contribution import Contribution
from bokilib.records.isolation import Isolation
from bokistore.commit.group_rules import Member
from bokistore.commit.transactions import Transaction
from bokistore.model.events import AnyEvent

R = TypeVar("R")

RUNNING: Final[contextvars.ContextVar[tuple[Job[Any], ...]]] = contextvars.ContextVar("bokistore bodies", default=())
"""The transactions whose bodies run here, outermost first."""


class Committed(NamedTuple, Generic[R]):
    """A staged transaction that is in the log: its seqnum, and what its body returned."""

    seqnum: int
    result: R


class TransactionSpec(NamedTuple, Generic[R]):
    """Body of a transaction and how to run it.

    Attributes:
        body: the function that reads and writes.
        name: its name, for errors.
        isolation: its level.
        consistency: of the snapshot that it reads.
        staged: whether an owner decides when it joins a record, and adds a part to it.
    """

    body: Callable[[Transaction], Awaitable[R]]
    name: str
    isolation: Isolation
    consistency: ConsistencyName
    staged: bool = False


class Job(Generic[R]):
    """A transaction that a caller waits for.

    Attributes:
        number: order of arrival.
        retries: how many conflicts it may still lose.
        least: cached views count only as of this place or above.
        losses: runs that were wasted because others committed first.
        slow: whether a record did not wait for its last run.
        ran_s: how long its last run took.
        late: whether its time limit began again because the process had stood still.
        joins: whether it may join a record.
        held: whether its run ended and waits for the owner.
        within: transactions whose bodies called for this one, outermost first.
        undercut: streams on which transactions within this one committed.
        undercuts: how often such a commit wasted a run of it.
    """

    def __init__(self, number: int, spec: TransactionSpec[R], retries: int) -> None:
        self.number: Final = number
        self.spec: Final = spec
        self.retries = retries
        self.context: Final = contextvars.copy_context()
        self.within: Final = RUNNING.get()
        self.undercut: Final[set[str]] = set()
        self.undercuts = 0
        self.trusting = spec.consistency == "session"
        self.least = 0
        self.losses = 0
        self.slow = False
        self.joins = not spec.staged
        self.held = False
        self.conflicts = 0
        self.began_s = 0.0
        self.ran_s = 0.0
        self.late = False
        confined.check(confined.A_CLIENT)  # the commit of another caller would take it along
        self.future: asyncio.Future[Committed[R]] = asyncio.get_running_loop().create_future()
        if spec.staged:
            self.future.add_done_callback(_mark_retrieved)
        self.task: asyncio.Task[None] | None = None
        self.transaction: Transaction | None = None
        self.result: R | None = None
        self.error: BaseException | None = None
        self.member: Member | None = None
        self.part: Callable[[R], Contribution] | None = None
        self.owner: asyncio.Future[bool] | None = None
        """The staged transaction's owner waits here: True once a run of it ended or it is decided, False if it runs again."""

    @property
    def seqnum(self) -> int:
        """Place in the log; 0 before it committed."""
        return self.transaction.seqnum if self.transaction is not None else 0

    def wake_owner(self, ended: bool) -> None:
        """Wake the owner that waits: its run ended or is decided, or it runs again."""
        if self.owner is not None and not self.owner.done():
            self.owner.set_result(ended)

    def finish(self) -> None:
        """Give the caller what the body returned or raised."""
        if self.error is not None:
            self.fail(self.error)
        elif not self.future.done():
            result = cast(R, self.result)  # if it is None, the body returned None
            self.future.set_result(Committed(self.seqnum, result))
            self.wake_owner(True)

    def fail(self, error: BaseException) -> None:
        """Give the caller an error."""
        if self.future.done():
            return
        if isinstance(
            error, StopIteration
        ):  # no future takes one; Python makes the same of one that a coroutine raises
            raised = RuntimeError(f"the body {self.spec.name!r} of a transaction raised StopIteration")
            raised.__cause__ = error
            error = raised
        self.future.set_exception(error)
        self.wake_owner(True)


class StagedCommits(Protocol):
    """The group commit, as a staged transaction sees it."""

    def join(self, job: Job[Any]) -> None:
        """Let a staged transaction commit: its owner has added its part."""

    async def withdraw(self, job: Job[Any]) -> None:
        """Give up a transaction, unless it is decided; return when its body has ended."""


class Staged(Generic[R]):
    """A transaction whose owner decides when it commits, and adds a part of its own: a workflow step.

    staged = store.stage(body)
    while True:
        result = await staged.ran()
        committed = await staged.commit(part)         # part(result): the owner's events in the same record
        if committed is not None: ...                 # otherwise it runs again, outside of the record
    """

    def __init__(self, room: StagedCommits, job: Job[R]) -> None:
        self._room: Final = room
        self._job: Final = job

    async def ran(self) -> R:
        """Wait until a run of the body has ended; return what it returned.

        Raises:
            Exception: whatever the body raised, or an error of the log. Nothing of it is in the log, and the transaction has ended.
        """
        job = self._job
        while not job.future.done():
            if job.held:
                return cast(R, job.result)
            await self._woken()
        return (await job.future).result

    async def commit(self, part: Callable[[R], Contribution]) -> Committed[R] | None:
        """Commit with the owner's part of the record; return None if the body runs again, which `ran` waits for.

        Args:
            part: makes the owner's part from what the body returned; called again if the body runs again for this record.

        Raises:
            Fenced: a stream that the part expects moved.
            AppendUnknown: it may have committed.
            Exception: as `ran`.
        """
        self._job.part = part
        try:
            self._room.join(self._job)
        except Exception as error:
            await self.end()
            raise error
        if not self._job.future.done() and not await self._woken():
            return None
        return await self._job.future

    async def end(self) -> None:
        """Give up the transaction, unless it is decided; return when its body has ended."""
        await self._room.withdraw(self._job)

    async def _woken(self) -> bool:
        job = self._job
        job.owner = asyncio.get_running_loop().create_future()
        try:
            return await job.owner
        except asyncio.CancelledError:
            await self.end()
            raise
        finally:
            job.owner = None


def _mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Mark an error as retrieved, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


def name_of(body: Callable[..., Any]) -> str:
    return getattr(body, "__qualname__", None) or type(body).__qualname__


def written(job: Job[Any]) -> Sequence[AnyEvent]:
    """Return the events that a transaction writes: none if its body raised."""
    return () if job.error is not None else transaction_of(job).staging.events


def member_of(job: Job[Any]) -> Member:
    assert job.member is not None
    return job.member


def transaction_of(job: Job[Any]) -> Transaction:
    assert job.transaction is not None
    return job.transaction
