"""All that the log keeps of one workflow: its start, who ran it, its history, its end. Pure; `reading` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from bokiflow.history.instance_state import Held, LockWait, Status, status_of
from bokiflow.model.flow_events import Cancelled, Claimed, Ended, Started
from bokiflow.model.history import Recorded
from bokiflow.model.outcomes import Outcome
from bokiflow_tools.timeline import Span, Timeline, timeline


class Life(NamedTuple):
    """See the module.

    Attributes:
        started: how it began, or began again the last time; without its history as far as its end has that; None: no record has it.
        claims: who took it over, and when the log had that. records: its history since then; None: that is not kept any more.
        blocked: why it cannot go on; "" if it can. position: as of when. held: where it stands.
        origin: the workflow that it is a fork of; "" if it is none, or its history is not kept any more.
        result_kept: False if it ended, and its outcome is not kept any more.
        idle_claims: workers that took it over since it last recorded anything.
        waits_for: locks that it waits for. holds: names of locks that it holds.
        launched: status of each workflow that it launched, by id, as far as that is kept.
    """

    id: str
    started: Started | None
    claims: list[tuple[int, Claimed]]
    ended: Ended | None
    records: list[Recorded] | None
    position: int
    blocked: str = ""
    held: Held = Held(0)
    origin: str = ""
    result_kept: bool = True
    idle_claims: int = 0
    waits_for: tuple[LockWait, ...] = ()
    holds: tuple[str, ...] = ()
    launched: Mapping[str, Status] = MappingProxyType({})

    @property
    def group(self) -> str:
        """The app that it is of."""
        return self.started.group if self.started is not None else self.ended.group if self.ended is not None else ""

    @property
    def status(self) -> Status:
        """How it stands."""
        return status_of(self.ended, self.blocked)

    @property
    def name(self) -> str:
        """Of its function."""
        return self.started.name if self.started is not None else self.ended.name if self.ended is not None else ""

    @property
    def owner(self) -> str:
        """Who runs it; "": nobody."""
        if self.ended is not None:
            return ""
        if self.claims:
            return self.claims[-1][1].owner
        return self.started.owner if self.started is not None else ""

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None: it did not, or that is not kept any more."""
        return self.ended.outcome if self.ended is not None and self.result_kept else None

    @property
    def history_kept(self) -> bool:
        """Whether the log has its history still."""
        return self.records is not None

    @property
    def not_kept(self) -> str:
        """The sentence that its history is gone, with the setting of workers that says when."""
        setting = "failed_history_s" if self.status == "failed" else "history_s"
        return f"its history is not kept any more ({setting})"

    @property
    def cancels(self) -> list[str]:
        """Reasons of those that asked it to end, in the order of the log."""
        return [event.reason for one in self.records or () for event in one.incoming if isinstance(event, Cancelled)]

    @property
    def timeline(self) -> Timeline | None:
        """What it did; None: its history is not kept any more."""
        if self.started is None or self.records is None:
            return None
        made = timeline(self.started, self.records, self.claims, self.ended)
        return made._replace(spans=[self._now(span) for span in made.spans])

    def _now(self, span: Span) -> Span:
        """Return a span with what other streams of the log have of it now."""
        if span.kind == "queued" and span.end_ms is None:
            return span._replace(value=next((one for one in self.waits_for if one.name == span.name), None))
        return span._replace(value=self.launched.get(span.child)) if span.kind == "launch" else span
