"""Handles of workflows: result, status, steps and emitted events; signals, cancellation and forks."""

from __future__ import annotations

from datetime import UTC, datetime
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
from bokiflow.model.flow_events import (
    PICKER,
    Cancelled,
    Checkpointed,
    Emitted,
    Ended,
    Resumed,
    Signalled,
    Started,
)
from bokiflow.model.history_fold import History
from bokiflow.model.outcomes import as_json, cancellation_text, error_of, missing_class
from bokiflow.model.record_batcher import SEND_ADDRESS, naming
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
            AtomicTooLarge: the value does not fit a record.
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

    async def _send(self, event: Signalled | Cancelled) -> None:
        place = await self._living()
        if place is not None:
            if isinstance(event, Signalled):
                what, instead = f"signal {event.topic!r}", SEND_ADDRESS
            else:
                what, instead = "the reason of a cancellation", "give a shorter one"
            with naming(f"{what} to workflow {self.id!r}", instead):
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

        An `anext` that is cancelled, as by `asyncio.wait_for`, loses no value: the next one continues. One that raises Trimmed or Lost has
        passed over the values that are missing, and the next one continues behind them.

        Args:
            topic: the topic.
            follow: also wait for later values; the iteration never ends, unless it is closed.

        Raises:
            Trimmed: values are not kept any more: the workflow ended, or it restarted after it emitted them.
            Lost: records that may have had values were declared lost.
            InvalidArgument: the topic is no text.
            IteratorBusy: another task waits for the next value of this iterator.
            ClosedError: the client is closed.
        """
        records.check_text("a topic", topic)
        log = self._flow.log
        emitted = EmittedValues(log, self.id, topic)
        return of_records(log.book.read(tags.flow_output(self.id, topic), start=1, follow=follow), emitted.values_of)


class EmittedValues:
    """The values that a workflow emits under a topic, from the records of the topic's stream.

    Records below a checkpoint are trimmed, and their values read from the history in it. That has no values of runs before a restart.
    """

    def __init__(self, log: Log, id: str, topic: str) -> None:
        self._log: Final = log
        self._id: Final = id
        self._topic: Final = topic
        self._last = 0
        """The seqnum of the newest value."""
        self._reported = 0
        """The place up to which missing values of an ended workflow were reported."""
        self._reported_run = 0
        """The run before which missing values were reported."""
        self._missing = 0
        """The first seqnum of trimmed records since the newest checkpoint; 0 if there are none."""

    async def values_of(self, item: boki.Record | boki.Gap) -> list[Json]:
        """Return the values of the next record. Raises Trimmed, Lost for what is missing, once."""
        if isinstance(item, boki.Gap):
            if item.last > self._reported:
                await self._check_gap(item)
            return []
        values: list[object] = []
        upto = self._last
        mine = PICKER.of(item.seqnum, await self._log.open(item), about=self._id)
        if upto == 0 and any(isinstance(event, Started) for event in mine):
            self._missing = item.seqnum  # values of a fork's origin are in the checkpoint of this record
        for event in mine:
            if isinstance(event, Emitted) and event.topic == self._topic:
                upto = item.seqnum
                values.append(event.value)
            elif isinstance(event, Checkpointed) and event.covers > upto:
                emitted = await self._in_history(item.seqnum)
                values += [value for seqnum, value in emitted if upto < seqnum <= event.covers]
                upto = event.covers
        self._last, self._missing = upto, 0
        return cast(list[Json], values)

    async def _check_gap(self, gap: boki.Gap) -> None:
        if gap.kind is not boki.GapKind.TRIMMED:
            self._reported = gap.last
            raise gap.error()
        self._missing = self._missing or gap.first
        try:
            found = await inspection.whole_history(self._log, self._id)
        except Trimmed as trimmed:
            ended = await inspection.newest(self._log, self._id)
            if ended is None or ended.ended is None or self._topic not in ended.ended.topics:
                return  # it was forgotten, or emitted nothing
            self._reported = gap.last
            raise self._trimmed("the workflow ended, and none of them is kept any more", gap.last + 1) from trimmed
        if found.start <= gap.last:
            self._check_run(found)

    async def _in_history(self, checkpoint: int) -> list[tuple[int, object]]:
        """Return the values that the history has, for records below a checkpoint. Raises Trimmed if some are in no record any more."""
        try:
            found = await inspection.whole_history(self._log, self._id)
        except Trimmed as trimmed:  # the workflow has ended, and its history is trimmed
            if not self._missing or checkpoint <= self._reported:
                return []
            self._reported = checkpoint
            raise self._trimmed("the workflow ended", checkpoint + 1) from trimmed
        if self._missing:
            self._check_run(found)
        emitted = [(one.seqnum, event) for one in found.records for event in one.own if isinstance(event, Emitted)]
        return [(seqnum, event.value) for seqnum, event in emitted if event.topic == self._topic]

    def _check_run(self, found: History) -> None:
        """Raise Trimmed if missing values may be of a run before the last restart: they are not in the history. Once for each restart."""
        restarted = found.restarted
        if restarted is None or self._topic not in restarted.topics or restarted.run <= self._reported_run:
            return
        if not 0 < found.restarted_at < self._missing:
            self._reported_run = restarted.run
            since = datetime.fromtimestamp(restarted.at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
            why = f"it restarted since, at {since}, and what it emitted before is kept for about a day"
            raise self._trimmed(why, found.restarted_at)

    def _trimmed(self, why: str, mark: int) -> Trimmed:
        return Trimmed(
            f"expected all values that workflow {self._id!r} emitted under {self._topic!r}, found some trimmed: {why}. The next call of "
            f"`anext` gives those that are kept",
            mark=mark,
            id=self._id,
            topic=self._topic,
        )


def _missing(id: str) -> NoSuchWorkflow:
    return NoSuchWorkflow(f"there is no workflow {id!r}: {NOT_THERE}", id=id)
