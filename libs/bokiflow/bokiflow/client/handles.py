"""One workflow, from outside: its result, its status, what it emits; signals and cancellation."""

from __future__ import annotations

from collections.abc import AsyncIterator
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
from bokiflow.model.outcomes import cancellation_text, error_of, missing_class
from bokiflow.model.plain import as_json
from bokiflow.runtime.calls import Workflow, names_of
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.codec import Json

R = TypeVar("R")


class FlowPort(Protocol):
    """What a handle needs of a `Flow`."""

    @property
    def log(self) -> Log: ...

    @property
    def group(self) -> str: ...

    async def wait(self, id: str, start: int, *, blocked: OnBlocked, missing: OnMissing) -> Ended:
        """How it ended."""

    async def fork(self, origin: str, id: str | None, before: str | None) -> tuple[str, int]:
        """Starts a fork; its id, and where it began."""

    async def terminate(self, id: str, reason: str) -> None:
        """End a workflow without its code."""

    def token(self) -> str:
        """Random."""


class Handle(Generic[R]):
    """See the module.

    Attributes:
        id: of the workflow.
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
        """`start`: seqnum of its beginning, or 0. `ended`: how it ended, if that is known. `missing`: by default; see `result`."""
        self.id: Final = id
        self._flow: Final = flow
        self._workflow: Final = workflow
        self._start: Final = start
        self._ended = ended
        self._missing: Final = missing

    def __repr__(self) -> str:
        return f"<bokiflow.Handle {self.id!r}>"

    async def result(self, *, blocked: OnBlocked = None, missing: OnMissing | None = None) -> R:
        """What it returned; waits for it.

        Args:
            blocked: "raise": WorkflowBlocked as soon as it is blocked. "wait": wait until it goes on. By default it is raised once the
                workflow has been blocked for 5 s, within which a deploy takes it up again.
            missing: "raise": NoSuchWorkflow if no workflow has this id, or it is forgotten. "wait": wait until one is started. By default
                handles of `flow.debounce` wait.

        Raises:
            What it raised. WorkflowCancelled. WorkflowBlocked. NoSuchWorkflow. NonDeterminism, NotRegistered: this process ran it, and
            cannot. ResultExpired.
        """
        confined.check(confined.A_CLIENT)  # it may be known here already, and not where the caller is replayed
        if self._ended is None:
            missing = missing or self._missing
            self._ended = await self._flow.wait(self.id, self._start, blocked=blocked, missing=missing)
        outcome = self._ended.outcome
        if outcome.cancelled:
            raise WorkflowCancelled(cancellation_text(f"workflow {self.id!r}", outcome))
        if outcome.error is not None:
            names = {} if self._workflow is None else names_of(self._workflow.function)
            if (
                self._workflow is not None
            ):  # only to import what the workflow imports, so that the class is the one that a parent gets
                missing_class(outcome.error, names)
            raise error_of(outcome.error, names)
        return cast(R, outcome.value if self._workflow is None else self._workflow.signature.result(outcome.value))

    async def status(self) -> Status:
        """How it stands. Raises NoSuchWorkflow."""
        found = await inspection.newest(self._flow.log, self.id, consistency="linearizable")
        if found is None:
            raise _nobody(self.id)
        return status_of(found.ended, found.blocked)

    def steps(self) -> AsyncIterator[Done]:
        """What it did and got since it began, or began again. Raises Trimmed: it ended a while ago, and its history is not kept."""
        return inspection.done(self._flow.log, self.id)

    async def signal(self, topic: str, value: object = None) -> None:
        """Send it a value, which `recv(topic)` gives it, once. What has ended gets nothing.

        The value waits in the log while no worker runs the workflow; `boki flow show` says if none is alive.

        Raises:
            NoSuchWorkflow. NotEncodable. AppendUnknown.
        """
        await self._send(Signalled(self.id, topic, as_json(value), self._flow.token()))

    async def cancel(self, reason: str = "") -> None:
        """Asks it to end: its code gets CancelledError where it waits. What is over stays so. Raises NoSuchWorkflow, AppendUnknown."""
        await self._send(Cancelled(self.id, reason))

    async def terminate(self, reason: str = "") -> None:
        """End it, whether it runs or is blocked, without its code: nothing cleans up. No worker is needed for that.

        Its children are cancelled, its locks released; `result()` raises WorkflowCancelled, and says why. A step that runs may run on; its
        outcome is refused. What has ended stays as it is. Prefer `cancel`, unless the workflow is blocked or ignores it.

        Raises:
            NoSuchWorkflow. AppendUnknown: call it again.
        """
        await self._flow.terminate(self.id, reason)

    async def resume(self) -> None:
        """Ask workers to try it again if it is blocked. Workers that begin later try it anyway. Raises NoSuchWorkflow, AppendUnknown."""
        found = await inspection.newest(self._flow.log, self.id, consistency="linearizable")
        if found is None:
            raise _nobody(self.id)
        if found.ended is None:
            await self._flow.log.append(records.resume(records.Place(self.id, self._flow.group), Resumed(self.id)))

    async def fork(self, *, id: str | None = None, before: str | None = None) -> Handle[R]:
        """Starts a workflow with the same call, whose history is this one's up to a step: what was done before is not done again,
        and what ran after that step is not undone (`boki flow fork` lists it).

        Args:
            id: of the new one; by default a random one.
            before: key of the first step (child, …) that is done anew, as `steps` has it; by default that of the first one that failed.
                Without either, all of the history is taken over.

        Raises:
            NoSuchWorkflow. IdReused. Trimmed: it ended a while ago, and its history is not kept. InvalidArgument: a child was running then:
            fork before it; or nothing has that key. AtomicTooLarge: it emitted under hundreds of topics. AppendUnknown.
        """
        new, start = await self._flow.fork(self.id, id, before)
        return Handle(self._flow, new, self._workflow, start=start)

    async def _send(self, event: Incoming) -> None:
        found = await inspection.newest(self._flow.log, self.id, consistency="linearizable")
        if found is None:
            raise _nobody(self.id)
        if found.ended is None:
            await self._flow.log.append(records.send(records.Place(self.id, self._flow.group), event))

    async def events(self, topic: str, *, follow: bool = True) -> AsyncIterator[Json]:
        """What it emits under a topic, from the first on; with `follow` also what comes, without end."""
        log, last = self._flow.log, 0
        async for item in log.book.read(tags.flow_output(self.id, topic), start=1, follow=follow):
            if isinstance(item, boki.Gap):
                continue
            for event in PICKER.of(item.seqnum, await log.open(item), about=self.id):
                if isinstance(event, Emitted) and event.topic == topic:
                    last = item.seqnum
                    yield cast(Json, event.value)
                elif isinstance(event, Checkpointed) and event.covers > last:
                    for seqnum, value in await _emitted(log, self.id, topic):
                        if last < seqnum <= event.covers:
                            yield cast(Json, value)
                    last = event.covers


async def _emitted(log: Log, id: str, topic: str) -> list[tuple[int, object]]:
    """What a workflow emitted, as its history has it: where that is in the log is trimmed."""
    try:
        found = await inspection.whole_history(log, id)
    except Trimmed:  # it is over by now
        return []
    emitted = [(one.seqnum, event) for one in found.records for event in one.own if isinstance(event, Emitted)]
    return [(seqnum, event.value) for seqnum, event in emitted if event.topic == topic]


def _nobody(id: str) -> NoSuchWorkflow:
    return NoSuchWorkflow(f"there is no workflow {id!r}: {NOT_THERE}", id=id)
