"""Transactions of one process that commit as one record (`group_rules`).

While a record is on its way, transactions queue. Then all that wait run at once, and join one record in the
order in which they came; those that had to see an earlier one's writes run again, on its state. So a hot object takes as many
transactions a round trip as there are in the queue, and none of them conflicts with another.

They begin with what is known here (`open_snapshot`); one that was wrong, or whose result nothing would prove, runs again and reads the log.

An unknown outcome is raised to all whose record it was. Nothing is concluded from a Conflict but who has to run again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from boki_common.errors import BokiError, Conflict, Trimmed
from bokilib.contribution import Contribution, joined
from bokilib.errors import AtomicTooLarge, Fenced
from bokilib.events import encode_events
from bokilib.isolation import Isolation
from bokilib.ports import ConsistencyName
from bokilib.tags import store_object
from bokistore.events import AnyEvent
from bokistore.fold import View
from bokistore.group_rules import Member, after_conflict, must_see, record_of
from bokistore.snapshot_reads import Views
from bokistore.transaction_rules import Overlay
from bokistore.transactions import NOTHING, Transaction

JOBS_AT_ONCE: Final = 64
RETRIES: Final = 32

R = TypeVar("R")


class _Job(Generic[R]):
    """One transaction that somebody waits for."""

    def __init__(
        self,
        body: Callable[[Transaction], Awaitable[R]],
        isolation: Isolation,
        retries: int,
        consistency: ConsistencyName,
    ) -> None:
        self.body = body
        self.isolation: Isolation = isolation
        self.retries = retries
        self.consistency: ConsistencyName = consistency
        self.trusting = consistency == "session"
        """Whether it may read what is known here, without a request."""
        self.future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.transaction: Transaction | None = None
        self.result: R | None = None
        self.error: BaseException | None = None
        self.member: Member | None = None

    async def run(self, transaction: Transaction) -> None:
        """Runs the body; what it returns or raises counts later."""
        self.transaction, self.result, self.error = transaction, None, None
        try:
            self.result = await self.body(transaction)
        except Exception as error:  # noqa: BLE001 - it is the caller's, and raised to him
            self.error = error
        transaction.end()
        try:
            await transaction.placed(proven=self.error is not None or transaction.staging.empty)
        except BokiError as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def finish(self) -> None:
        """It is decided: what it returned or raised is so."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast(R, self.result))  # if it is None, the body returned None


class GroupCommit:
    """See the module. Belongs to one event loop.

    Attributes:
        views: what transactions read. runs: of bodies, so far.
    """

    def __init__(
        self,
        views: Views,
        *,
        isolation: Isolation = "serializable",
        retries: int = RETRIES,
        committed: Callable[[Sequence[AnyEvent]], None] | None = None,
    ) -> None:
        """
        Args:
            isolation, retries: of transactions that name none.
            committed: called with the events of each record that was appended.
        """
        self.views: Final = views
        self.runs = 0
        self._isolation: Final[Isolation] = isolation
        self._retries = retries
        self._notify = committed
        self._log = views.log
        self._queue: deque[_Job[Any]] = deque()
        self._kept: list[_Job[Any]] = []
        self._driver: asyncio.Task[None] | None = None
        self._numbers = 0

    async def run(
        self,
        body: Callable[[Transaction], Awaitable[R]],
        *,
        isolation: Isolation | None = None,
        retries: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> R:
        """Runs a transaction until it commits; returns what its body returned.

        Raises:
            Conflict: it lost so often. Fenced: another library's fence moved. AppendUnknown: perhaps it committed.
            What the body raised: then nothing was committed.
        """
        most = self._retries if retries is None else retries
        job: _Job[R] = _Job(body, isolation or self._isolation, most, consistency)
        self._queue.append(job)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._drive(), name="bokistore group commit")
        return await job.future

    async def _drive(self) -> None:
        jobs: list[_Job[Any]] = []
        try:
            while self._queue or self._kept:
                jobs = [*self._kept]
                new: list[_Job[Any]] = []
                while self._queue and len(new) < JOBS_AT_ONCE:
                    job = self._queue.popleft()
                    if not job.future.done():
                        new.append(job)
                jobs += new
                await self._round(new)
        except BaseException as error:
            for job in [*jobs, *self._kept, *self._queue]:
                job.fail(error)
            self._kept, self._queue = [], deque()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _round(self, new: Sequence[_Job[Any]]) -> None:
        """Runs what is new, sends one record, and sees what became of it."""
        withdrawn = [job for job in self._kept if job.future.done()]
        if withdrawn:
            self._rerun_dependents(withdrawn)
            self._kept = [job for job in self._kept if job not in withdrawn]
        if new:
            await asyncio.gather(*(self._attempt(job, NOTHING) for job in new))
            overlay = Overlay()
            for job in self._kept:
                overlay.add(_written(job))
            for job in new:
                await self._join(job, overlay)
        record = record_of([_member(job) for job in self._kept])
        by_number = {_member(job).number: job for job in self._kept}
        jobs = [by_number[member.number] for member in record.members]
        self._kept = [by_number[member.number] for member in record.waiting]
        if not record.part.events:
            for job in jobs:
                job.finish()
            return
        await self._send(record.part, jobs)

    async def _attempt(self, job: _Job[Any], overlay: Overlay) -> None:
        self.runs += 1
        await job.run(Transaction(self.views, job.isolation, job.consistency, trusting=job.trusting, overlay=overlay))

    async def _join(self, job: _Job[Any], overlay: Overlay) -> None:
        """Puts a transaction that ran behind those that are to commit before it; `overlay`: what these wrote."""
        if job.future.done():
            return
        if isinstance(job.error, Trimmed) and job.retries > 0:
            job.retries -= 1
            self._queue.appendleft(job)
            return
        before = [_member(other) for other in self._kept]
        member = self._member_of(job, ())
        if any(must_see(member, earlier) for earlier in before):
            await self._attempt(job, overlay)
            if job.future.done():
                return
            seen = _transaction(job).staging
            touched = {*seen.read_streams, *seen.joined_streams}
            member = self._member_of(job, [earlier.number for earlier in before if earlier.joined & touched])
        where = _transaction(job).where
        if where.stale or not (member.part.events or member.ran_on or where.proven()):
            job.trusting = False
            self._queue.appendleft(job)
            return
        job.member = member
        if not member.part.events and not member.ran_on:
            job.finish()
        else:
            self._kept.append(job)
            overlay.add(_written(job))

    def _member_of(self, job: _Job[Any], ran_on: Sequence[int]) -> Member:
        staging = _transaction(job).staging
        part = joined([staging.contribution(), *staging.extra])
        reads = Contribution((), dict.fromkeys(staging.read_streams, staging.snapshot))
        if job.error is not None:  # nothing of it is written; whether it is right to raise depends on what it read
            part = reads
        elif ran_on:  # it saw a state that never was, unless nothing of what it read moves before the record
            part = joined([part, reads])
        self._numbers += 1
        return Member(
            self._numbers,
            job.isolation,
            frozenset(staging.read_streams),
            frozenset(staging.written_streams),
            frozenset(staging.joined_streams) if job.error is None else frozenset(),
            staging.fences if job.error is None else {},
            part,
            len(encode_events(part.events)),
            frozenset(ran_on),
        )

    async def _send(self, part: Contribution, jobs: list[_Job[Any]]) -> None:
        try:
            seqnum = await self._log.append(part)
        except Conflict as conflict:
            self._after_conflict(jobs, part, conflict)
        except AtomicTooLarge as error:
            if len(jobs) == 1:
                jobs[0].fail(error)
            else:
                await self._send(_member(jobs[0]).part, jobs[:1])
                self._again(jobs[1:])
        except BokiError as error:
            for job in jobs:
                job.fail(error)
            self._rerun_dependents(jobs)
        else:
            self._committed(seqnum, part, jobs)

    def _committed(self, seqnum: int, part: Contribution, jobs: Sequence[_Job[Any]]) -> None:
        bases: dict[str, View] = {}
        events: list[AnyEvent] = []
        for job in jobs:
            transaction = _transaction(job)
            where, expected = transaction.where, _member(job).part.expect
            known = where.bases | where.unseen  # of what it does not expect, others may know better
            bases |= {name: base for name, base in known.items() if store_object(name) in expected}
            if job.error is None:
                transaction.seqnum = seqnum
                events += _written(job)
        self.views.committed(seqnum, part, events, bases.values())
        if self._notify is not None:
            self._notify(events)
        for job in jobs:
            job.finish()
        moved = {stream for job in jobs for stream in _member(job).joined}
        late = [job for job in self._kept if moved & _member(job).part.expect.keys()]
        self._again(late)

    def _after_conflict(self, jobs: Sequence[_Job[Any]], part: Contribution, conflict: Conflict) -> None:
        by_number = {_member(job).number: job for job in jobs}
        moved = self._log.moved(part.expect, conflict)
        verdict = after_conflict([_member(job) for job in jobs], {tag: one.newest for tag, one in moved.items()})
        for member in verdict.dropped:
            by_number[member.number].fail(Fenced(f"a fence of the transaction moved: {conflict}", **conflict.facts))
        again = [by_number[member.number] for member in verdict.again]
        kept = [by_number[member.number] for member in verdict.kept]
        if not again and not verdict.dropped:
            again, kept = kept, []
        for job in again:
            lost = not _transaction(job).where.guessed  # else what was known here was old: it lost to nobody
            job.trusting = False
            job.retries -= lost
            if job.retries < 0:
                job.fail(conflict)
        self._kept = kept + self._kept
        self._again(again)
        self._rerun_dependents([*again, *(by_number[member.number] for member in verdict.dropped)])

    def _again(self, jobs: Sequence[_Job[Any]]) -> None:
        """Runs them in the next round, before what came later."""
        self._kept = [job for job in self._kept if job not in jobs]
        self._queue.extendleft(reversed([job for job in jobs if not job.future.done()]))

    def _rerun_dependents(self, jobs: Sequence[_Job[Any]]) -> None:
        """Of those that wait, who ran on the state of one that is not in the log."""
        gone = {_member(job).number for job in jobs}
        self._again([job for job in self._kept if _member(job).ran_on & gone])


def _written(job: _Job[Any]) -> Sequence[AnyEvent]:
    """What it writes: nothing, if its body raised."""
    return () if job.error is not None else _transaction(job).staging.events


def _member(job: _Job[Any]) -> Member:
    assert job.member is not None
    return job.member


def _transaction(job: _Job[Any]) -> Transaction:
    assert job.transaction is not None
    return job.transaction
