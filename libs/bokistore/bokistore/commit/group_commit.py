"""Group commit: transactions of one process that commit as one record (`group_rules`).

Each body runs in a task of its own (`bodies`) and delays neither other bodies nor a record. A transaction whose body has run is *ready*.
While no record is being appended, ready transactions join the next one in order of arrival; a transaction that must see an earlier one's
writes first runs again on that state. A hot object therefore takes as many transactions per round trip as are ready, without conflicts.

- A record waits up to about two round trips for reads that bodies have sent, and for nothing else that they do. A body that takes longer
  runs outside of the record, against committed state; it loses to faster ones, and after some losses it gets the turn for its objects
  (`turns`).
- A body begins with cached views (`open_snapshot`). If one was old, or if no append would prove the result, it runs again and reads the
  log.
- After a Conflict the transactions that lost run again together, once the streams that moved were read. If they lost to another process,
  they pause first; after several losses in a row the process claims the streams (`turns`).
- A process that reads another process's claim sends nothing that expects the stream for as long as the claim says.
- A staged transaction keeps its turn while its owner decides, for as long as a body may run; then the turn ends.
- An unknown outcome is raised to all callers that have events in the record. A transaction that only expects something, because its body
  raised or wrote nothing, runs again: the outcome of the record is not its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

import boki
from boki_common.errors import BokiError, Conflict, InvalidArgument, Trimmed
from boki_common.limits import RECORD_TAGS
from bokilib.append.batcher import Driver
from bokilib.errors import AtomicTooLarge, Fenced
from bokilib.ports import ConsistencyName
from bokilib.records.contribution import Contribution, joined
from bokilib.records.events import encode_events
from bokilib.records.isolation import Isolation
from bokilib.records.tags import store_object
from bokistore.commit.bodies import Bodies
from bokistore.commit.group_rules import Draft, Member, NewestSeqnums, Standing, after_conflict, outdated, standing
from bokistore.commit.jobs import Job, Staged, TransactionSpec, member_of, name_of, transaction_of, written
from bokistore.commit.transaction_rules import Overlay
from bokistore.commit.transactions import NOTHING, Transaction
from bokistore.commit.turns import LOSSES, Contention, Turns
from bokistore.model.events import AnyEvent, Claim
from bokistore.model.fold import View
from bokistore.read.snapshot_reads import Views

JOBS_AT_ONCE: Final = 128
"""Transactions that are looked at for one record."""
RETRIES: Final = 32
UNTIL_IT_COMMITS: Final = 1 << 62
"""Retries of a transaction that only its owner gives up."""
LIMIT_S: Final = 60.0
PATIENCE_LEAST_S: Final = 0.004
PATIENCE_MOST_S: Final = 0.02
"""TransactionSpec long a record waits, in all, for reads of bodies that run, or run again, and could join it."""

R = TypeVar("R")


def _callers(job: Job[Any]) -> list[int]:
    return [caller.number for caller in job.within]


def undercut(job: Job[Any]) -> InvalidArgument:
    """Return the error of a transaction whose body commits other transactions on objects that it reads itself: it can never commit."""
    return InvalidArgument(
        f"the body {job.spec.name!r} of a transaction commits another transaction on the objects that it reads or writes itself, so each "
        "run of it is out of date when it ends: read and write them through its own transaction, or call the other one before or after it"
    )


def claimable(transactions: Iterable[Transaction], streams: Collection[str]) -> dict[str, Claim]:
    """Return the claims of those of the streams that transactions read or write as objects, by stream, as many as a record may have.

    They are commits without operations, and name the objects, so that checkpoints and trims find what lies in their streams.
    """
    claims: dict[str, Claim] = {}
    for transaction in transactions:
        for name in (*transaction.where.bases, *transaction.staging.written):
            tag = store_object(name)
            if tag in streams and len(claims) < RECORD_TAGS:
                claims.setdefault(tag, Claim(name, (), transaction.staging.snapshot))
    return claims


class GroupCommit:
    """Commits of one store; see the module. It belongs to one event loop.

    Attributes:
        views: cached reads of objects, which transactions read through.
        runs: how many times a body was started.
    """

    def __init__(
        self,
        views: Views,
        *,
        isolation: Isolation = "serializable",
        retries: int = RETRIES,
        limit_s: float = LIMIT_S,
        committed: Callable[[Sequence[AnyEvent]], None] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            views: cached reads of objects.
            isolation: the level of transactions that name none.
            retries: how often a transaction that names no limit may lose.
            limit_s: for how long a body may run.
            committed: called with the events of each record that was appended.
        """
        self.views: Final = views
        self.runs = 0
        self._isolation: Final[Isolation] = isolation
        self._retries: Final = retries
        self._notify = committed
        self._log: Final = views.log
        self._newest: Final = NewestSeqnums()
        self._turns: Final = Turns()
        self._contention: Final = Contention(self._log.by)
        self._bodies: Final = Bodies(views, limit_s, ran=self._ran, failed=self._fail)
        self._ready: Final[dict[int, Job[Any]]] = {}
        self._parked: Final[dict[int, Job[Any]]] = {}
        """Transactions that wait for the end of a turn."""
        self._limit_s: Final = limit_s
        self._held: Final[dict[int, asyncio.TimerHandle]] = {}
        """When the turn of a staged transaction ends whose owner has not asked for its commit, by number."""
        self._resting: Final[dict[str, int]] = {}
        """Streams for which nothing is sent, and the number of pauses that hold each of them."""
        self._context: Final = contextvars.copy_context()
        self._driver: Final = Driver(self._drive, "bokistore group commit", context=self._context)
        self._claims: Final[set[asyncio.Task[None]]] = set()
        """Claims under way, kept so that none is collected."""
        self._jobs = 0
        self._members = 0
        self._append_s = PATIENCE_MOST_S / 2
        views.cached.claimed = self._claimed

    # -- callers

    async def run(
        self,
        body: Callable[[Transaction], Awaitable[R]],
        *,
        name: str = "",
        isolation: Isolation | None = None,
        retries: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> R:
        """Run a transaction until it commits; return what its body returned.

        Raises:
            Conflict: it lost too often.
            Fenced: another library's fence moved.
            AppendUnknown: it may have committed.
            TransactionTimeout: its body took too long.
            Exception: whatever the body raised; then nothing was committed.
        """
        most = self._retries if retries is None else retries
        spec = TransactionSpec(body, name or name_of(body), isolation or self._isolation, consistency)
        job = Job(self._next_job(), spec, most)
        self._start(job)
        try:
            return (await job.future).result
        except asyncio.CancelledError:
            if job.future.cancelled():  # the caller was cancelled: the body ends before the caller resumes
                await self.withdraw(job)
            raise

    def stage(
        self, body: Callable[[Transaction], Awaitable[R]], *, name: str = "", isolation: Isolation | None = None
    ) -> Staged[R]:
        """Run a transaction that commits once its owner says so, together with the owner's part."""
        spec = TransactionSpec(body, name or name_of(body), isolation or self._isolation, "session", staged=True)
        job = Job(self._next_job(), spec, UNTIL_IT_COMMITS)
        self._start(job)
        return Staged(self, job)

    def join(self, job: Job[Any]) -> None:
        """Make a staged transaction ready: its owner has added its part."""
        job.joins, job.held = True, False
        self._unhold(job)
        if not job.future.done():
            job.member = self._member_of(job, job.member.ran_on if job.member is not None else ())
            self._ready[job.number] = job
            self._driver.wake()

    async def withdraw(self, job: Job[Any]) -> None:
        """Give a transaction up, unless it is decided; return when its body has ended."""
        job.future.cancel()
        job.wake_owner(True)
        self._forget(job)
        task = job.task
        if task is not None and not task.done() and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    def _next_job(self) -> int:
        self._jobs += 1
        return self._jobs

    # -- bodies

    def _start(self, job: Job[Any], overlay: Overlay = NOTHING, before: Sequence[Member] = ()) -> None:
        self.runs += 1
        self._bodies.start(job, overlay, before)

    def _ran(self, job: Job[Any], before: Sequence[Member]) -> None:
        """Decide what follows the run of a body: an outcome at once, another run, or a place in a record."""
        if job.future.done():
            return
        job.ran_s = asyncio.get_running_loop().time() - job.began_s
        if isinstance(job.error, Trimmed) and job.retries > 0:
            job.retries -= 1
            self._start(job)
            return
        transaction = transaction_of(job)
        touched = {*transaction.staging.read_streams, *transaction.staging.joined_streams} if before else ()
        member = self._member_of(job, [one.number for one in before if not one.joined.isdisjoint(touched)])
        writes = bool(member.part.events) or (job.spec.staged and job.error is None)
        where = transaction.where
        if where.stale or not (writes or member.ran_on or where.proven()):
            if where.stale:
                job.least = max(job.least, self._log.book.position or 0)
            job.trusting = job.trusting and writes and not where.stale
            self._start(job)
            return
        job.member = member
        if not writes and not member.ran_on:
            self._finish(job)
        elif job.joins or job.error is not None:
            self._ready[job.number] = job
            self._driver.wake()
        else:
            self._hold(job)
            job.wake_owner(True)

    def _hold(self, job: Job[Any]) -> None:
        """Let a staged transaction wait for its owner; its turn, if it has one, ends after a while."""
        job.held = True
        if self._turns.has(job.number):
            loop = asyncio.get_running_loop()
            self._held[job.number] = loop.call_later(
                self._limit_s, self._held_too_long, job, context=self._context.copy()
            )

    def _held_too_long(self, job: Job[Any]) -> None:
        """End the turn of a transaction whose owner has not decided in time. It may get one again."""
        del self._held[job.number]
        job.losses = 0
        if self._turns.ended(job.number):
            self._unpark()

    def _unhold(self, job: Job[Any]) -> None:
        timer = self._held.pop(job.number, None)
        if timer is not None:
            timer.cancel()

    def _fail(self, job: Job[Any], error: BaseException) -> None:
        job.fail(error)
        self._forget(job)

    def _finish(self, job: Job[Any]) -> None:
        job.finish()
        self._forget(job)

    def _forget(self, job: Job[Any]) -> None:
        """Remove a transaction that is decided and end its turn."""
        self._bodies.forget(job)
        self._ready.pop(job.number, None)
        self._parked.pop(job.number, None)
        self._unhold(job)
        if self._turns.ended(job.number):
            self._unpark()

    def _unpark(self) -> None:
        """Run the transactions again that waited for a turn which has ended."""
        parked = [job for _, job in sorted(self._parked.items())]
        self._parked.clear()
        self._run_all(parked)

    # -- records

    async def _drive(self) -> None:
        """Send record after record, as long as something is ready that may be sent.

        An error ends the transactions of the record on its way and all that are ready: no caller waits for a driver that stopped.
        """
        jobs: dict[int, Job[Any]] = {}
        try:
            while any(not self._rests(job) for job in self._ready.values()):
                jobs = {}
                await self._bodies.reads_ended(self._patience_s())
                draft, jobs = await self._compose()
                draft, jobs = self._without_withdrawn(draft, jobs)
                for job in jobs.values():
                    self._ready.pop(job.number, None)
                part = draft.part()
                if part.events:
                    await self._send(part, list(jobs.values()))
                for job in jobs.values():
                    if not part.events:
                        self._finish(job)
        except BaseException as error:
            for job in (*jobs.values(), *self._ready.values()):
                self._fail(job, error)
            if isinstance(error, asyncio.CancelledError):
                raise

    def _rests(self, job: Job[Any]) -> bool:
        return bool(self._resting) and not self._resting.keys().isdisjoint(member_of(job).part.expect)

    async def _compose(self) -> tuple[Draft, dict[int, Job[Any]]]:
        """Put the next record together; return it, and its transactions by number of the member."""
        draft, jobs, overlay = Draft(), dict[int, Job[Any]](), Overlay()
        until_s = asyncio.get_running_loop().time() + self._patience_s()
        for job in self._in_order():
            if job.slow and (member_of(job).ran_on or outdated(member_of(job), self._newest)):
                self._run_outside(job)
        for job in self._in_order()[:JOBS_AT_ONCE]:
            if job.future.done():
                self._forget(job)
            if self._ready.get(job.number) is not job or not draft.takes(member_of(job)):
                continue
            behind = [one.number for one in jobs.values()]  # in one record with whom has the turn it need not wait
            if self._turns.waits(job.number, member_of(job).joined, [*_callers(job), *behind]):
                self._park(job)
                continue
            became = standing(member_of(job), draft, self._newest)
            if became is Standing.RUNS_AGAIN:
                if job.slow or not await self._run_again(job, draft, overlay, until_s):
                    continue  # one that is slow has its chance when this record is decided
                became = standing(member_of(job), draft, self._newest)
            member = member_of(job)
            if became is Standing.RUNS_AGAIN:
                self._run_outside(job)
            elif became is Standing.JOINS and not self._turns.waits(
                job.number, member.joined, [*_callers(job), *behind]
            ):
                draft.add(member)
                jobs[member.number] = job
                overlay.add(written(job))
        return draft, jobs

    def _in_order(self) -> list[Job[Any]]:
        """Return those that may be sent, in the order in which they came."""
        return [job for _, job in sorted(self._ready.items()) if not self._rests(job)]

    async def _run_again(self, job: Job[Any], draft: Draft, overlay: Overlay, until_s: float) -> bool:
        """Run a body on the state of a draft; return whether it ended in time, and is ready."""
        del self._ready[job.number]
        job.least = max(job.least, outdated(member_of(job), self._newest))
        self._start(job, overlay.copy(), draft.members)
        if not await self._bodies.ended(job, until_s):
            job.slow = True
            self._release(job)
        return self._ready.get(job.number) is job

    def _run_outside(self, job: Job[Any]) -> None:
        """Run a body against committed state: it did not see the members before it in the record."""
        self._ready.pop(job.number, None)
        job.least = max(job.least, outdated(member_of(job), self._newest))
        self._lost(job)
        self._release(job)
        if not job.future.done():
            self._start(job)

    def _park(self, job: Job[Any]) -> None:
        """Put a transaction aside until the turn that it waits for has ended."""
        self._ready.pop(job.number, None)
        self._release(job)
        self._parked[job.number] = job

    def _lost(self, job: Job[Any]) -> None:
        """Count a run that others made worthless; a transaction that lost often gets the turn for its objects.

        A transaction whose caller was cancelled while the record was on its way gets no turn: nothing would end it.
        """
        if job.future.done():
            return
        job.losses += 1
        job.trusting = job.trusting and job.losses < LOSSES  # what is known here did not help so far
        member = member_of(job)
        if not job.undercut.isdisjoint(member.part.expect):
            job.undercut.clear()
            job.undercuts += 1
            if job.undercuts >= LOSSES:
                self._fail(job, undercut(job))
                return
        if self._turns.lost(job.number, job.losses, [tag for tag in member.part.expect if tag not in member.fences]):
            job.losses = 0
            self._unpark()

    def _release(self, job: Job[Any]) -> None:
        """Tell the owner of a staged transaction that it runs again."""
        if job.spec.staged:
            job.joins, job.part = False, None
            job.wake_owner(False)

    def _without_withdrawn(self, draft: Draft, jobs: dict[int, Job[Any]]) -> tuple[Draft, dict[int, Job[Any]]]:
        """Leave out transactions that were given up meanwhile, and those that ran on their state: they run again."""
        gone = [number for number, job in jobs.items() if job.future.done()]
        if not gone:
            return draft, jobs
        rest, dependents = draft.without(gone)
        for number in gone:
            self._forget(jobs[number])
        return rest, {member.number: jobs[member.number] for member in rest.members if member.number not in dependents}

    def _patience_s(self) -> float:
        return min(PATIENCE_MOST_S, max(PATIENCE_LEAST_S, 2 * self._append_s))

    def _member_of(self, job: Job[Any], ran_on: Iterable[int]) -> Member:
        staging = transaction_of(job).staging
        extra = list(staging.extra)
        if job.part is not None and job.error is None:
            extra.append(job.part(job.result))
        own = staging.contribution()
        part = joined([own, *extra])
        reads = Contribution((), dict.fromkeys(staging.read_streams, staging.snapshot))
        saw = frozenset(ran_on)
        if job.error is not None:  # its writes are dropped; the error counts only if what it read has not moved
            part = reads
        elif saw:  # the state that it saw was never in the log, if a stream that it read moves before the record
            part = joined([part, reads])
        self._members += 1
        return Member(
            self._members,
            job.spec.isolation,
            frozenset(staging.read_streams),
            frozenset(staging.written_streams),
            frozenset(own.tags) if job.error is None else frozenset(),
            {tag: seqnum for one in extra for tag, seqnum in one.expect.items()} if job.error is None else {},
            part,
            len(encode_events(part.events)),
            saw,
        )

    async def _send(self, part: Contribution, jobs: list[Job[Any]]) -> None:
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        try:
            seqnum = await self._log.append(part)
        except Conflict as conflict:
            self._append_s = loop.time() - sent_s
            self._after_conflict(jobs, part, conflict)
        except AtomicTooLarge as error:
            if len(jobs) == 1:
                self._fail(jobs[0], error)
            else:
                await self._send(member_of(jobs[0]).part, jobs[:1])
                self._back(jobs[1:])
        except BokiError as error:
            bystanders = [job for job in jobs if not member_of(job).part.events]
            for job in jobs:
                if job in bystanders:
                    job.trusting = False  # the record may be in the log
                    self._release(job)
                else:
                    self._fail(job, error)
            self._run_all(bystanders)
        except BaseException as error:
            for job in jobs:
                self._fail(job, error)
            raise
        else:
            self._append_s = loop.time() - sent_s
            self._committed(seqnum, part, jobs)

    def _back(self, jobs: Iterable[Job[Any]]) -> None:
        """Make transactions ready that were in a record which was not appended."""
        for job in jobs:
            if not job.future.done():
                self._ready[job.number] = job

    def _committed(self, seqnum: int, part: Contribution, jobs: Sequence[Job[Any]]) -> None:
        bases: dict[str, View] = {}
        events: list[AnyEvent] = []
        moved: dict[str, None] = {}
        expected: dict[str, None] = {}
        for job in jobs:
            transaction, member = transaction_of(job), member_of(job)
            where = transaction.where
            known = where.bases | where.unseen  # of streams that it does not expect, the cache may have a newer view
            bases |= {name: base for name, base in known.items() if store_object(name) in member.part.expect}
            moved.update(dict.fromkeys(sorted(member.joined)))
            expected.update(dict.fromkeys(tag for tag in member.part.expect if tag not in member.fences))
            if job.error is None:
                transaction.seqnum = seqnum
                events += written(job)
        self._newest.moved(moved, seqnum)
        for job in jobs:
            for caller in job.within:
                caller.undercut.update(member_of(job).joined)
        self.views.cached.committed(seqnum, part, events, bases.values())
        if self._notify is not None:
            self._notify(events)
        for job in jobs:
            self._finish(job)
        self._contention.won(expected)

    def _after_conflict(self, jobs: Sequence[Job[Any]], part: Contribution, conflict: Conflict) -> None:
        by_number = {member_of(job).number: job for job in jobs}
        moved = self._log.moved(part.expect, conflict)
        verdict = after_conflict([member_of(job) for job in jobs], {tag: one.newest for tag, one in moved.items()})
        for tag, one in moved.items():
            self._newest.moved([tag], one.newest or 0)
        for member in verdict.dropped:
            fenced = Fenced(f"a fence of the transaction moved: {conflict}", **conflict.facts)
            self._fail(by_number[member.number], fenced)
        again = [by_number[member.number] for member in verdict.again]
        kept = [by_number[member.number] for member in verdict.kept]
        if not again and not verdict.dropped:
            again, kept = kept, []
        self._back(kept)
        foreign = False
        for job in again:
            lost = bool(job.conflicts) or not transaction_of(job).where.guessed  # else what was known here was old
            foreign = foreign or lost
            job.conflicts += 1
            job.least = max(job.least, conflict.facts.get("position", 0))
            job.retries -= lost
            self._release(job)
            if lost:
                self._lost(job)
            if job.retries < 0:
                self._fail(job, conflict)
        pause_s, wanted = 0.0, list[str]()
        if again:
            run_s = max(job.ran_s for job in again) + self._append_s
            pause_s, wanted = self._contention.lost(moved, self._append_s, run_s=run_s, guessed=not foreign)
        claims = {tag: moved[tag].newest or 0 for tag in wanted}
        self._rest(list(moved), pause_s, again, claims)

    def _rest(
        self,
        streams: Sequence[str],
        pause_s: float,
        jobs: Sequence[Job[Any]],
        claims: Mapping[str, int],
    ) -> None:
        """Send nothing that expects these streams for a while, and then run transactions again.

        Args:
            claims: streams to claim first, and to where each had moved.
        """
        if not pause_s:
            self._run_all(jobs)
            return
        for stream in streams:
            self._resting[stream] = self._resting.get(stream, 0) + 1
        _ = asyncio.get_running_loop().call_later(pause_s, self._paused, streams, jobs, claims, context=self._context)

    def _paused(self, streams: Sequence[str], jobs: Sequence[Job[Any]], claims: Mapping[str, int]) -> None:
        """End a pause: claim the streams that other processes moved, or run the transactions again."""
        foreign = {tag for tag, seqnum in claims.items() if not self._log.wrote(seqnum)}
        if foreign:
            self._spawn(self._claim(foreign, streams, jobs))
        else:
            self._rested(streams, jobs)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="bokistore claim", context=self._context.copy())
        self._claims.add(task)
        task.add_done_callback(self._claims.discard)

    def _claimed(self, name: str, record: boki.Record, needs_s: float) -> None:
        """Another process claims an object: send nothing that expects it until its commit is there, or its time has passed."""
        now_s = asyncio.get_running_loop().time()
        since_s = max(0, self._log.now_ms() - record.time_ms) / 1_000
        stream = store_object(name)
        rest_s = self._contention.claimed(stream, record.seqnum, needs_s - since_s, now_s)
        if rest_s:
            self._resting[stream] = self._resting.get(stream, 0) + 1
            _ = asyncio.get_running_loop().call_later(rest_s, self._left_alone, name, context=self._context)

    def _left_alone(self, name: str) -> None:
        """End a rest: read first, if transactions wait for it."""
        stream = store_object(name)
        if self._expecting(stream):
            self._spawn(self._resume(name))
        else:
            self._rested([stream], [])

    async def _resume(self, name: str) -> None:
        """Read, once for all transactions, what the process that claimed an object has committed, and send again."""
        stream = store_object(name)
        try:
            await self.views.refresh([name])
            known = self.views.cache.get(name)
            if known is not None:
                self._newest.moved([stream], known.view.seen)
        except Exception:  # noqa: BLE001 - transactions meet the error themselves, if it lasts
            pass
        except BaseException as error:  # the loop ends: nothing is sent any more
            for job in self._expecting(stream):
                self._fail(job, error)
            raise
        self._rested([stream], [])

    def _expecting(self, stream: str) -> list[Job[Any]]:
        return [job for job in self._ready.values() if stream in member_of(job).part.expect]

    async def _claim(self, foreign: Collection[str], streams: Sequence[str], jobs: Sequence[Job[Any]]) -> None:
        """Claim streams (`turns`), read once for all transactions what lies before that, and then run them again on it."""
        clock = asyncio.get_running_loop().time
        losers = [job for job in jobs if not job.future.done()]
        claims = claimable([transaction_of(job) for job in losers], foreign)
        names = [one.name for one in claims.values()]
        try:
            await self.views.refresh(names)  # reads claims of other processes, too
            wait_s = self._contention.wait_s(claims, clock())
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if claims and not all(job.future.done() for job in losers):
                appends_s = 2 * self._append_s  # the claim, and the record behind it
                needs_s = self._contention.claims(claims, max(job.ran_s for job in losers) + appends_s)
                needs_ms = math.ceil(needs_s * 1_000)
                events = tuple(msgspec.structs.replace(one, needs_ms=needs_ms) for one in claims.values())
                seqnum = await self._log.append(Contribution(tuple(claims), {}, events))
                self._contention.claimed_here(claims, seqnum, clock() + needs_s)
                self._newest.moved(claims, seqnum)
                for job in jobs:
                    job.least = max(job.least, seqnum)
                await self.views.refresh(names)
            for job in (*jobs, *self._parked.values()):
                job.trusting, job.slow = job.spec.consistency == "session", False
        except BokiError:
            pass  # transactions are right without it, and meet the error themselves if it lasts
        except BaseException as error:
            for job in jobs:
                self._fail(job, error)
            if isinstance(error, asyncio.CancelledError):
                raise  # the loop ends: nothing is sent any more
        self._rested(streams, jobs)

    def _rested(self, streams: Sequence[str], jobs: Sequence[Job[Any]]) -> None:
        for stream in streams:
            self._resting[stream] -= 1
            if not self._resting[stream]:
                del self._resting[stream]
        self._run_all(jobs)
        if self._ready:
            self._driver.wake()

    def _run_all(self, jobs: Sequence[Job[Any]]) -> None:
        for job in jobs:
            if not job.future.done():
                self._start(job)
