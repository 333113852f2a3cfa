"""Handles of workflows: result, status, steps and emitted events; signals, cancellation and forks."""

from __future__ import annotations

from typing import Any, Final, Generic, Protocol, TypeVar, cast

import boki
from boki_common.errors import Trimmed
from boki_common.runtime import confined
from bokiflow.cancellation import WorkflowCancelled
from bokiflow.client.results import NOT_THERE, OnBlocked, OnMissing
from bokiflow.errors import NoSuchWorkflow
from bokiflow.history import inspection
from bokiflow.history.inspection import Done
from bokiflow.history.instance_state import Status, status_of
from bokiflow.model import records
from bokiflow.model.flow_events import PICKER, Cancelled, Checkpointed, Emitted, Ended, Incoming, Resumed, Signalled
from bokiflow.model.outcomes import as_json, cancellation_text, error_of, missing_class
from bokiflow.runtime.calls import Workflow, names_of
from bokilib.append.log import Log
from bokilib.iteration import Iteration, of_records, once
from bokilib.records import tags
from bokilib.records.codec import Json, copy_json

R = TypeVar("R")


class FlowPort(Protocol):
    """The attributes and methods of `Flow` that a handle uses."""

    @property
    def log(self) -> Log: ...

    @property
    def group(self) -> str: ...

    async def wait(self, id: str, start: int, *, blocked: OnBlocked, missing: OnMissing) -> Ended:
        """Wait for the end of a workflow."""

    async def fork(self, origin: str, id: str | None, before: str | None) -> tuple[str, int]:
        """Start a fork; return its id and the seqnum of its start."""

    async def terminate(self, id: str, reason: str) -> None:
        """End a workflow without its code."""

    def token(self) -> str:
        """Return a random token."""


class Handle(Generic[R]):
    """The handle of a workflow.

    Attributes:
        id: the id of the workflow.
    """

    def __init__(
        self,
        flow: FlowPort,
        id: str,
        workflow: Workflow[..., Any] | None,
        *,
        start: int = 0,
        ended: Ended | None = None,
        missing: OnMissing = "raise",
    ) -> None:
        """Create a handle; see `Flow.start` and `Flow.handle`.

        Args:
            flow: the client.
            id: the id of the workflow.
            workflow: the workflow's function, whose type the result is converted to.
            start: the seqnum of its start; 0 means any workflow with this id.
            ended: its end, if that is known.
            missing: the default of `result`.
        """
        self.id: Final = id
        self._flow: Final = flow
        self._workflow: Final = workflow
        self._start: Final = start
        self._ended = ended
        self._missing: Final = missing

    def __repr__(self) -> str:
        return f"<bokiflow.Handle {self.id!r}>"

    async def result(self, *, blocked: OnBlocked = None, missing: OnMissing | None = None) -> R:
        """Wait until the workflow ends, and return its result. If the workflow failed, its error is raised.

        Args:
            blocked: "raise" raises WorkflowBlocked as soon as the workflow is blocked. "wait" waits until the workflow resumes. By
                default it is raised after the workflow has been blocked for 5 s, in which a deploy may resume it.
            missing: "raise" raises NoSuchWorkflow if no workflow has this id, or it is forgotten. "wait" waits until one is started. By
                default handles of `flow.debounce` wait.

        Raises:
            WorkflowCancelled: the workflow was cancelled or terminated.
            WorkflowBlocked: the workflow is blocked, see `blocked`.
            NoSuchWorkflow: no workflow has this id, see `missing`.
            NonDeterminism: this process ran the workflow, and its code does not fit the history.
            NotRegistered: this process ran the workflow, and lacks its code.
            ResultExpired: the workflow ended, and its result is not kept any more.
            ClosedError: the Flow or Worker of this handle was left, before or while this call waited.
        """
        # This process may know the result already, while one that replays the caller does not.
        confined.check(confined.A_CLIENT)
        if self._ended is None:
            missing = missing or self._missing
            self._ended = await self._flow.wait(self.id, self._start, blocked=blocked, missing=missing)
        outcome = self._ended.outcome
        if outcome.cancelled:
            raise WorkflowCancelled(cancellation_text(f"workflow {self.id!r}", outcome))
        if outcome.error is not None:
            names = {} if self._workflow is None else names_of(self._workflow.function)
            if self._workflow is not None:
                # Import the modules that the workflow imports, so that the error's class is the one that a parent gets.
                missing_class(outcome.error, names)
            raise error_of(outcome.error, names)
        value = copy_json(outcome.value)
        return cast(R, value if self._workflow is None else self._workflow.signature.result(value))

    async def status(self) -> Status:
        """Read the status of the workflow.

        Raises:
            NoSuchWorkflow: no workflow has this id.
        """
        found = await inspection.newest(self._flow.log, self.id, consistency="linearizable")
        if found is None:
            raise _missing(self.id)
        return status_of(found.ended, found.blocked)

    def steps(self) -> Iteration[Done]:
        """Return an iterator over the steps and received events of the workflow's newest run.

        Raises:
            Trimmed: the workflow ended, and its history is not kept any more.
        """
        return once(lambda: inspection.done(self._flow.log, self.id))

    async def signal(self, topic: str, value: object = None) -> None:
        """Send a value to the workflow: `recv(topic)` in its code returns it, once. A workflow that has ended receives nothing.

        The value waits in the log while no worker runs the workflow; `boki flow show` says if none is alive.

        Args:
            topic: the topic.
            value: the value, which has to be JSON.

        Raises:
            NoSuchWorkflow: no workflow has this id.
            NotEncodable: the value is not JSON.
            InvalidArgument: the topic is no text.
            AppendUnknown: the signal may or may not have been sent.
        """
        records.check_text("a topic", topic)
        await self._send(Signalled(self.id, topic, as_json(value), self._flow.token()))

    async def cancel(self, reason: str = "") -> None:
        """Ask the workflow to end: its code gets CancelledError where it waits. A workflow that has ended stays as it is.

        Args:
            reason: recorded in the history.

        Raises:
            NoSuchWorkflow: no workflow has this id.
            InvalidArgument: the reason is no text.
            AppendUnknown: the request may or may not have been sent.
        """
        await self._send(Cancelled(self.id, records.check_text("a reason", reason)))

    async def terminate(self, reason: str = "") -> None:
        """End the running or blocked workflow without its code: nothing cleans up, and no worker is needed.

        Its children are cancelled and its locks released; `result()` raises WorkflowCancelled with the reason. A step that runs now may
        finish; its outcome is refused. A workflow that has ended stays as it is. Prefer `cancel`, unless the workflow is blocked or
        ignores it.

        Args:
            reason: recorded in the history.

        Raises:
            NoSuchWorkflow: no workflow has this id.
            InvalidArgument: the reason is no text.
            AppendUnknown: the workflow may or may not be ended; call again.
            PartlyApplied: the workflow is blocked and not ended; call again.
        """
        await self._flow.terminate(self.id, records.check_text("a reason", reason))

    async def resume(self) -> None:
        """Ask workers to retry the workflow if it is blocked. Workers that begin later retry it anyway.

        Raises:
            NoSuchWorkflow: no workflow has this id.
            AppendUnknown: the request may or may not have been sent.
        """
        place = await self._living()
        if place is not None:
            await self._flow.log.append(records.resume(place, Resumed(self.id)))

    async def fork(self, *, id: str | None = None, before: str | None = None) -> Handle[R]:
        """Start a new workflow with the same call and with this workflow's history before a step.

        Steps before that place are not repeated, and steps after it are not undone (`boki flow fork` lists them).

        Args:
            id: the id of the new workflow; by default a random one.
            before: the key of the first step (or child, …) to repeat, as `steps` has it; by default the first step that failed. Without
                either, the new workflow has the whole history.

        Returns:
            The handle of the new workflow.

        Raises:
            NoSuchWorkflow: no workflow has this id.
            IdReused: another call has used the new id.
            Trimmed: the workflow ended, and its history is not kept any more.
            InvalidArgument: a child ran at that place (fork before it), or no step has that key.
            AtomicTooLarge: the workflow emitted under hundreds of topics.
            AppendUnknown: the new workflow may or may not have been started.
        """
        if before is not None:
            records.check_text("the key of a step", before)
        new, start = await self._flow.fork(self.id, id, before)
        return Handle(self._flow, new, self._workflow, start=start)

    async def _send(self, event: Incoming) -> None:
        place = await self._living()
        if place is not None:
            await self._flow.log.append(records.send(place, event))

    async def _living(self) -> records.InstanceStreams | None:
        """Return the streams of the workflow, whichever app of the book it is of; None if it has ended. Raises NoSuchWorkflow."""
        found = await inspection.newest(self._flow.log, self.id, consistency="linearizable")
        call = None if found is None else await inspection.started_call(self._flow.log, self.id, found)
        if found is None or call is None:
            raise _missing(self.id)
        return records.InstanceStreams(self.id, call.group) if found.ended is None else None

    def events(self, topic: str, *, follow: bool = True) -> Iteration[Json]:
        """Return an iterator over the values that the workflow emits under a topic, from the first on.

        An `anext` that is cancelled, as by `asyncio.wait_for`, loses no value: the next one continues.

        Args:
            topic: the topic.
            follow: also wait for later values; the iteration never ends, unless it is closed.

        Raises:
            InvalidArgument: the topic is no text.
            IteratorBusy: another task waits for the next value of this iterator.
            ClosedError: the client is closed.
        """
        records.check_text("a topic", topic)
        log, last = self._flow.log, 0

        async def values_of(item: boki.Record | boki.Gap) -> list[Json]:
            nonlocal last
            if isinstance(item, boki.Gap):
                return []
            values: list[object] = []
            upto = last
            for event in PICKER.of(item.seqnum, await log.open(item), about=self.id):
                if isinstance(event, Emitted) and event.topic == topic:
                    upto = item.seqnum
                    values.append(event.value)
                elif isinstance(event, Checkpointed) and event.covers > upto:
                    emitted = await _emitted(log, self.id, topic)
                    values += [value for seqnum, value in emitted if upto < seqnum <= event.covers]
                    upto = event.covers
            last = upto
            return cast(list[Json], values)

        return of_records(log.book.read(tags.flow_output(self.id, topic), start=1, follow=follow), values_of)


async def _emitted(log: Log, id: str, topic: str) -> list[tuple[int, object]]:
    """Return the values that a workflow emitted from its history: their records are trimmed."""
    try:
        found = await inspection.whole_history(log, id)
    except Trimmed:  # the workflow has ended, and its history is trimmed
        return []
    emitted = [(one.seqnum, event) for one in found.records for event in one.own if isinstance(event, Emitted)]
    return [(seqnum, event.value) for seqnum, event in emitted if event.topic == topic]


def _missing(id: str) -> NoSuchWorkflow:
    return NoSuchWorkflow(f"there is no workflow {id!r}: {NOT_THERE}", id=id)
