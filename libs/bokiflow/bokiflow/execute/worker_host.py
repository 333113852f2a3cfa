"""The worker, as clients and executors in its process see it."""

from __future__ import annotations

from typing import Protocol

from boki_common.runtime.code_watch import CodeWatch
from boki_common.runtime.ports import Bodies
from bokiflow.execute.body import CancelledBodies, FailedAttempts
from bokiflow.execute.traces import Spans
from bokiflow.locks.lock_room import LockRoom
from bokiflow.model.flow_events import Ended, Started
from bokilib.append.log import Log
from bokilib.ports import TicketPort
from bokilib.records.contribution import Contribution


class WorkerHost(Protocol):
    """The worker of this process."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def spans(self) -> Spans: ...

    @property
    def bodies(self) -> Bodies: ...

    @property
    def locks(self) -> LockRoom: ...

    @property
    def failed_attempts(self) -> FailedAttempts: ...

    @property
    def cancelled(self) -> CancelledBodies:
        """The bodies of steps that were cancelled and have not ended."""

    @property
    def finishing(self) -> bool:
        """True while the worker is being drained."""

    @property
    def watch(self) -> CodeWatch | None:
        """The thread that stops code which blocks the event loop, or None."""

    def token(self) -> str:
        """Return a random token."""

    def owner_of(self, id: str) -> tuple[str, int]:
        """Return the worker that runs a workflow started now, and its claim of the partition; ("", 0) if it is not this worker."""

    def runs(self, id: str) -> bool:
        """Return True if a workflow runs here, or is about to."""

    def began(self, started: Started, seqnum: int) -> None:
        """Run a workflow whose start was appended here, at that seqnum."""

    def unsure(self, id: str, ticket: TicketPort) -> None:
        """Run a workflow if the record of its start, whose appender does not learn the outcome, turns out to be in the log."""

    def lost(self, partition: int, claim: int) -> None:
        """Note that a claim of a partition was replaced."""

    async def end_of(self, id: str, start: int) -> Ended:
        """Wait for the end of a workflow, and return it."""

    def append_later(self, part: Contribution) -> None:
        """Append a record in the background."""

    def stuck(self, id: str, stack: str) -> None:
        """Say that a workflow's code blocks the event loop, and is interrupted. Called by the watching thread."""

    def still_stuck(self, id: str, claim: int, stack: str) -> None:
        """Record that a workflow's code blocks the event loop although it was interrupted. Called by the watching thread.

        Args:
            claim: the claim under which the workflow runs.
        """

    def ended(self, id: str, ended: Ended) -> None:
        """Note that a workflow has ended, and that this is in the log."""

    def parked(self, id: str) -> None:
        """Note that a workflow stopped here, since another worker may run it."""

    def blocked(self, id: str, error: BaseException, claim: int, carried_ms: int) -> None:
        """Note that a workflow cannot continue here.

        Args:
            claim: the claim under which it ran.
            carried_ms: when its oldest record was written, in milliseconds by the clock of the log.
        """
