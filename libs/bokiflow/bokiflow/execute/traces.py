"""Spans of workflows, where OpenTelemetry is installed: what runs in this process, when, and for whom.

| span | parent |
|---|---|
| `start NAME` | the caller's current span, or the workflow whose child it is; its context is in the workflow's Started |
| `workflow NAME`: as long as this process runs it | `start NAME` |
| `step NAME`, `transact NAME`: one body | `workflow NAME`; it is the current span of the body |

A replay makes none: bodies do not run in it. A workflow that is taken over has a second `workflow NAME` span, with `boki.takeover`; the
first one is lost with its process, if that died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from bokiflow.model.flow_events import Ended, Started
from bokiflow.model.outcomes import Outcome

try:  # here, and not when it is needed: while it is imported it asks the machine for randomness, which a simulator refuses
    from bokiflow.execute import open_telemetry
except ImportError:
    open_telemetry = None  # type: ignore[assignment]  # a module that is not there


class Span(Protocol):
    """Something that takes time."""

    @property
    def traceparent(self) -> str:
        """Its context, as W3C writes it; "": it is not recorded by anybody."""

    def fail(self, message: str) -> None:
        """What it stands for failed."""

    def end(self) -> None:
        """It is over."""


class Tracing(Protocol):
    """Who makes spans."""

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> Span:
        """A span.

        Args:
            parent: its context; "": the current one of the caller, unless there is a `link`: then it begins a trace.
            link: another span's context, that it has to do with.
        """

    @contextmanager
    def current(self, span: Span) -> Iterator[None]:
        """It is the caller's current span meanwhile."""


class NoSpan:
    """Nobody records it. `traceparent`: what its children have for a parent."""

    def __init__(self, traceparent: str = "") -> None:
        self.traceparent: Final = traceparent

    def fail(self, message: str) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


class NoTracing:
    """OpenTelemetry is not installed."""

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> Span:
        """One that nobody records; contexts are handed on."""
        return NoSpan(parent)

    @contextmanager
    def current(self, span: Span) -> Iterator[None]:
        """Nothing."""
        yield


def installed() -> Tracing:
    """OpenTelemetry, if it is installed: which spans it records, and where, the program has set up."""
    return NoTracing() if open_telemetry is None else open_telemetry.OpenTelemetry()


class Spans:
    """Spans of the workflows that this process starts and runs."""

    def __init__(self, tracing: Tracing | None = None) -> None:
        self._tracing: Final = tracing or installed()
        self._running: Final[dict[str, Span]] = {}

    def start(self, name: str, id: str, *, parent: str = "", link: str = "") -> str:
        """A workflow is about to be started; returns the context that it gets."""
        span = self._tracing.begin(f"start {name}", parent, {"boki.workflow.id": id}, link=link)
        span.end()
        return span.traceparent

    def child(self, parent_id: str, name: str, id: str, traceparent: str, *, detached: bool) -> str:
        """The same, by a workflow that runs here.

        Args:
            traceparent: of the workflow's own Started. detached: it is nobody's child, and has a trace of its own.
        """
        running = self._running.get(parent_id)
        context = running.traceparent if running is not None else traceparent
        return self.start(name, id, link=context) if detached else self.start(name, id, parent=context)

    def begin(self, started: Started, *, takeover: bool) -> None:
        """A workflow runs here from now on."""
        facts = {"boki.workflow.id": started.id, "boki.workflow.name": started.name, "boki.takeover": takeover}
        self._running[started.id] = self._tracing.begin(f"workflow {started.name}", started.traceparent, facts)

    def end(self, id: str, ended: Ended | None = None) -> None:
        """It does not run here any more. `ended`: it is over."""
        span = self._running.pop(id, None)
        if span is None:
            return
        if ended is not None and ended.outcome.error is not None:
            span.fail(ended.outcome.error.message)
        span.end()

    @contextmanager
    def body(self, id: str, kind: str, name: str, key: str) -> Iterator[Span]:
        """A body of a workflow that runs here."""
        running = self._running.get(id)
        parent = running.traceparent if running is not None else ""
        span = self._tracing.begin(f"{kind} {name}", parent, {"boki.workflow.id": id, "boki.step.key": key})
        try:
            with self._tracing.current(span):
                yield span
        finally:
            span.end()


def note(span: Span, outcome: Outcome) -> None:
    """How a body ended."""
    if outcome.error is not None:
        span.fail(f"{outcome.error.type}: {outcome.error.message}")
