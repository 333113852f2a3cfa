"""Bodies of transactions that run: each a task of its own, in its caller's context, for no longer than it may.

- Any exception of a body, also one that is no `Exception`, is that body's outcome: it ends neither other bodies nor the process. A
  person's Ctrl-C ends the process as ever.
- A body that takes too long is cancelled. If it ignores that, its transaction has ended all the same: what it reads and writes raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from boki_common.interruption import interrupted
from boki_common.runtime.bodies import from_outside
from bokilib.follow.lease_rules import stood_still
from bokistore.commit.group_rules import Member
from bokistore.commit.jobs import RUNNING, Job, transaction_of
from bokistore.commit.transaction_rules import Overlay
from bokistore.commit.transactions import Transaction
from bokistore.errors import TransactionTimeout
from bokistore.read.snapshot_reads import Views

TURNS: Final = 3
"""Turns of the loop that a body gets to run again for a record, beside the time of its reads."""


class Bodies:
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        views: Views,
        limit_s: float,
        *,
        ran: Callable[[Job[Any], Sequence[Member]], None],
        failed: Callable[[Job[Any], BaseException], None],
    ) -> None:
        """Run no body yet.

        Args:
            views: what transactions read.
            limit_s: for how long a body may run.
            ran: called when a body ended, with the members of the record that it ran on.
            failed: called when a body ended without an outcome that could be committed or raised.
        """
        self._views: Final = views
        self._limit_s: Final = limit_s
        self._on_ran: Final = ran
        self._on_failed: Final = failed
        self._running: Final[dict[Job[Any], None]] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._looks_s = 0.0
        """When the clock is looked at next."""

    def start(self, job: Job[Any], overlay: Overlay, before: Sequence[Member]) -> None:
        """Run a body, on the state that members of the next record leave."""
        loop = asyncio.get_running_loop()
        work = self._run(job, overlay, tuple(before))
        job.task = loop.create_task(work, name=f"bokistore transaction {job.spec.name}", context=job.context.copy())
        job.began_s = loop.time()
        self._running[job] = None
        if self._watch is None:
            self._look_at(loop, job.began_s + self._limit_s)

    def forget(self, job: Job[Any]) -> None:
        """Stop watching the time of a transaction that is decided."""
        self._running.pop(job, None)

    async def _run(self, job: Job[Any], overlay: Overlay, before: Sequence[Member]) -> None:
        RUNNING.set((*job.within, job))
        try:
            await self._attempt(job, overlay)
            self._running.pop(job, None)
            self._on_ran(job, before)
        except BaseException as error:
            asked = from_outside(error)
            if isinstance(error, GeneratorExit) and not _is_current(job.task):
                raise  # this coroutine is closed: no loop runs it any more
            self._on_failed(job, error)
            if asked:
                raise
        RUNNING.set(job.within)  # else the context of this task holds the job, which holds the task

    async def _attempt(self, job: Job[Any], overlay: Overlay) -> None:
        """Run the body once. An error of it is kept: what it read may prove wrong."""
        transaction = Transaction(
            self._views,
            job.spec.isolation,
            job.spec.consistency,
            trusting=job.trusting,
            least=job.least,
            overlay=overlay,
        )
        job.transaction, job.result, job.error, job.member, job.held = transaction, None, None, None, False
        try:
            job.result = await job.spec.body(transaction)
        except (asyncio.CancelledError, GeneratorExit):  # nothing may be awaited after these
            transaction.end()
            raise
        except BaseException as error:  # SystemExit of a body, too, is its caller's
            if interrupted(error):
                raise
            job.error = error
        transaction.end()
        await transaction.placed(proven=job.error is not None or (transaction.staging.empty and not job.spec.staged))

    def _look_at_clock(self) -> None:
        """Fail what runs for too long."""
        self._watch = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if stood_still(self._looks_s, now_s):  # bodies had no time: they have all of it once more
            for job in [job for job in self._running if not job.late]:
                job.began_s, job.late = now_s, True
        for job in [job for job in self._running if now_s >= job.began_s + self._limit_s]:  # as `_look_at` rounds it
            ran_s = now_s - job.began_s
            if job.transaction is not None:
                job.transaction.end()
            self._on_failed(
                job,
                TransactionTimeout(
                    f"the body {job.spec.name!r} of a transaction ran for {ran_s:.1f} s, and a body may run for"
                    f" {self._limit_s:.1f} s (StoreSettings.grace_ms): it was cancelled, and nothing of it is in the log."
                    " Do what takes long before the transaction, or in a step of a workflow",
                    body=job.spec.name,
                    ran_s=ran_s,
                    expected=self._limit_s,
                ),
            )
            assert job.task is not None
            job.task.cancel()
        if self._running:
            first_s = min(job.began_s for job in self._running)
            self._look_at(loop, first_s + self._limit_s)

    def _look_at(self, loop: asyncio.AbstractEventLoop, when_s: float) -> None:
        self._looks_s = when_s
        self._watch = loop.call_at(when_s, self._look_at_clock)

    async def reads_ended(self, patience_s: float) -> None:
        """Wait a moment for bodies that read the log just now: they commit together with what is ready."""
        until_s = asyncio.get_running_loop().time() + patience_s
        known = [job.transaction for job in self._running if job.transaction is not None]
        reading = [transaction for transaction in known if transaction.reads]
        for _ in range(TURNS if reading else 0):
            await self._reads_of(reading, until_s)
            await asyncio.sleep(0)

    async def ended(self, job: Job[Any], until_s: float) -> bool:
        """Wait for a body that has just begun, and for its reads; return whether it ended."""
        assert job.task is not None, "it has begun"
        for _ in range(TURNS):
            await asyncio.sleep(0)
            transaction = transaction_of(job)
            if not job.task.done() and transaction.reads:
                await self._reads_of([transaction], until_s)
            if job.task.done():
                break
        return job.task.done()

    async def _reads_of(self, transactions: Sequence[Transaction], until_s: float) -> None:
        ends = [transaction.read_ended() for transaction in transactions if transaction.reads]
        left_s = until_s - asyncio.get_running_loop().time()
        if ends and left_s > 0:
            await asyncio.wait(ends, timeout=left_s)


def _is_current(task: asyncio.Task[None] | None) -> bool:
    """Return whether a task runs now, in a loop."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
