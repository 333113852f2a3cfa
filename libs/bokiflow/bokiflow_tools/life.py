"""The life of a workflow as the log has it: its start, its workers, its history, its end. Pure; `reading` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from bokiflow.history.instance_state import InstanceState, LockWait, Status, status_of
from bokiflow.model.delivery_order import RecordedEvents
from bokiflow.model.flow_events import Cancelled, Claimed, Ended, Started
from bokiflow.model.outcomes import Outcome
from bokiflow_tools.timeline import Span, Timeline, timeline


class Life(NamedTuple):
    """The life of a workflow as of a position of the log.

    Attributes:
        id: the workflow.
        started: the start of its newest run. Without a history, the start as its end records it; None if no record has it.
        claims: the claims of the workflow, each with its time in the log.
        ended: its end; None while it runs.
        records: the history of its newest run; None if the history is not kept any more.
        position: the position of the log.
        blocked: the error that blocks it, with its stack; "" if it is not blocked.
        held: the newest state of its stream.
        origin: the workflow that it is a fork of; "" if it is no fork, or its history is not kept any more.
        result_kept: False if it ended and its outcome is not kept any more.
        idle_claims: takeovers since it last recorded anything.
        waits_for: the locks that it waits for.
        holds: the names of the locks that it holds.
        launched: the status of each workflow that it launched, by id, as far as the log keeps it.
    """

    id: str
    started: Started | None
    claims: list[tuple[int, Claimed]]
    ended: Ended | None
    records: list[RecordedEvents] | None
    position: int
    blocked: str = ""
    held: InstanceState = InstanceState(0)
    origin: str = ""
    result_kept: bool = True
    idle_claims: int = 0
    waits_for: tuple[LockWait, ...] = ()
    holds: tuple[str, ...] = ()
    launched: Mapping[str, Status] = MappingProxyType({})

    @property
    def group(self) -> str:
        """The name of its app; "" if no record has it."""
        return self.started.group if self.started is not None else self.ended.group if self.ended is not None else ""

    @property
    def status(self) -> Status:
        return status_of(self.ended, self.blocked)

    @property
    def name(self) -> str:
        """The name of its function; "" if no record has it."""
        return self.started.name if self.started is not None else self.ended.name if self.ended is not None else ""

    @property
    def owner(self) -> str:
        """The worker that runs it; "" if none does."""
        if self.ended is not None:
            return ""
        if self.claims:
            return self.claims[-1][1].owner
        return self.started.owner if self.started is not None else ""

    @property
    def outcome(self) -> Outcome | None:
        """The result or error that it ended with; None while it runs, or if that is not kept any more."""
        return self.ended.outcome if self.ended is not None and self.result_kept else None

    @property
    def history_kept(self) -> bool:
        return self.records is not None

    @property
    def not_kept(self) -> str:
        """The clause that its history is not kept, with the setting of workers that says for how long it is."""
        setting = "failed_history_s" if self.status == "failed" else "history_s"
        return f"its history is not kept any more ({setting})"

    @property
    def cancels(self) -> list[str]:
        """The reasons of requests to cancel it, in the order of the log."""
        return [event.reason for one in self.records or () for event in one.incoming if isinstance(event, Cancelled)]

    @property
    def timeline(self) -> Timeline | None:
        """The timeline of its newest run; None if its history is not kept any more."""
        if self.started is None or self.records is None:
            return None
        made = timeline(self.started, self.records, self.claims, self.ended)
        return made._replace(spans=[self._now(span) for span in made.spans])

    def _now(self, span: Span) -> Span:
        """Return a span with the state of its lock or launched workflow, which other streams of the log have."""
        if span.kind == "queued" and span.end_ms is None:
            return span._replace(value=next((one for one in self.waits_for if one.name == span.name), None))
        return span._replace(value=self.launched.get(span.child)) if span.kind == "launch" else span
