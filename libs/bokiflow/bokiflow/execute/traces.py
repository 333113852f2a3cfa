"""Spans of workflows: when each ran in this process, and which workflow started it. They are recorded where OpenTelemetry is installed.

| span | parent |
|---|---|
| `start NAME` | the caller's current span, or the span of the parent workflow; its context is in the workflow's Started |
| `workflow NAME`: as long as this process runs the workflow | `start NAME` |
| `step NAME`, `transact NAME`: one body | `workflow NAME`; the span of a body is current while it runs |

A replay has no spans of bodies, since it runs none. A workflow that is taken over has a second `workflow NAME` span, with `boki.takeover`.
The first one is lost if its process died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final, Protocol

from boki_common.interruption import interrupted
from boki_common.log_pace import LogPace
from boki_common.logs import get_logger
from bokiflow.model.flow_events import Ended, Started
from bokiflow.model.outcomes import Outcome
from bokilib.stacks import described, stack_of

try:  # imported here because its import reads random bytes of the machine, which a simulated program may not
    from bokiflow.execute import open_telemetry
except ImportError:
    open_telemetry = None  # type: ignore[assignment]  # the package is not installed


SAID_EVERY_S: Final = 60.0

log = get_logger(__name__)


class Span(Protocol):
    """A span: a named duration with a parent."""

    @property
    def traceparent(self) -> str:
        """The context of the span in W3C's format; "" if the span is not recorded."""

    def fail(self, message: str) -> None:
        """Mark the span as failed."""

    def end(self) -> None:
        """End the span."""


class Tracing(Protocol):
    """A source of spans."""

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> Span:
        """Begin a span.

        Args:
            parent: the context of its parent; "" means the caller's current span, or with a `link` none: then it begins a trace.
            link: the context of a related span.
        """

    @contextmanager
    def current(self, span: Span) -> Iterator[None]:
        """Make a span the caller's current one."""


class NoSpan:
    """A span that is not recorded. `traceparent` is the parent of its children."""

    def __init__(self, traceparent: str = "") -> None:
        self.traceparent: Final = traceparent

    def fail(self, message: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class NoTracing:
    """A source of spans that are not recorded, where OpenTelemetry is not installed."""

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> Span:
        """Begin a span that passes its parent's context on."""
        return NoSpan(parent)

    @contextmanager
    def current(self, span: Span) -> Iterator[None]:
        """Do nothing."""
        yield


def installed() -> Tracing:
    """Return OpenTelemetry as the program has set it up, if it is installed."""
    return NoTracing() if open_telemetry is None else open_telemetry.OpenTelemetry()


class _Guarded:
    """A source of spans whose errors end no workflow: one is logged a minute at most, and the span is not recorded."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing: Final = tracing
        self._pace: Final = LogPace(log.warning, "span not recorded: its maker raised an error", every_s=SAID_EVERY_S)

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> Span:
        with self.guard():
            begun = self._tracing.begin(name, parent, facts, link=link)
            return _GuardedSpan(begun, begun.traceparent, self.guard)
        return NoSpan(parent)

    @contextmanager
    def current(self, span: Span) -> Iterator[None]:
        with ExitStack() as stack:
            if isinstance(span, _GuardedSpan):
                with self.guard():
                    entered = self._tracing.current(span.inner)
                    entered.__enter__()
                    stack.push(partial(self._exit, entered))
            yield

    def _exit(self, entered: AbstractContextManager[None], *raised: Any) -> bool:
        with self.guard():
            entered.__exit__(*raised)
        return False

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Log what a user's code raises, unless a person interrupts the program."""
        try:
            yield
        except BaseException as error:
            if interrupted(error) or isinstance(error, GeneratorExit):
                raise
            self._pace.say(error=described(error), stack=stack_of(error))

    def flush(self) -> None:
        """Write the line that is held back."""
        self._pace.flush()


class _GuardedSpan:
    """A span of `_Guarded`."""

    def __init__(self, inner: Span, traceparent: str, guard: Callable[[], AbstractContextManager[None]]) -> None:
        self.inner: Final = inner
        self.traceparent: Final = traceparent
        self._guard: Final = guard

    def fail(self, message: str) -> None:
        with self._guard():
            self.inner.fail(message)

    def end(self) -> None:
        with self._guard():
            self.inner.end()


class Spans:
    """The spans of the workflows that this process starts and runs. A source of spans that raises an error holds up none of them."""

    def __init__(self, tracing: Tracing | None = None) -> None:
        self._tracing: Final = _Guarded(tracing or installed())
        self._running: Final[dict[str, Span]] = {}

    def flush(self) -> None:
        """Write the log line that is held back, at the end of the worker."""
        self._tracing.flush()

    def start(self, name: str, id: str, *, parent: str = "", link: str = "") -> str:
        """Record the start of a workflow; return the context to start it with."""
        span = self._tracing.begin(f"start {name}", parent, {"boki.workflow.id": id}, link=link)
        span.end()
        return span.traceparent

    def child(self, parent_id: str, name: str, id: str, traceparent: str, *, detached: bool) -> str:
        """Record the start of a workflow by a workflow that runs here; return the context to start it with.

        Args:
            traceparent: the context of the parent's own start.
            detached: the workflow is not a child, and has a trace of its own.
        """
        running = self._running.get(parent_id)
        context = running.traceparent if running is not None else traceparent
        return self.start(name, id, link=context) if detached else self.start(name, id, parent=context)

    def begin(self, started: Started, *, takeover: bool) -> None:
        """Begin the span of a workflow that runs here from now on."""
        facts = {"boki.workflow.id": started.id, "boki.workflow.name": started.name, "boki.takeover": takeover}
        self._running[started.id] = self._tracing.begin(f"workflow {started.name}", started.traceparent, facts)

    def end(self, id: str, ended: Ended | None = None) -> None:
        """End the span of a workflow that does not run here any more. `ended` is its end, if it has ended."""
        span = self._running.pop(id, None)
        if span is None:
            return
        if ended is not None and ended.outcome.error is not None:
            span.fail(ended.outcome.error.text)
        span.end()

    @contextmanager
    def body(self, id: str, kind: str, name: str, key: str) -> Iterator[Span]:
        """Return the span of a body of a workflow that runs here."""
        running = self._running.get(id)
        parent = running.traceparent if running is not None else ""
        span = self._tracing.begin(f"{kind} {name}", parent, {"boki.workflow.id": id, "boki.step.key": key})
        try:
            with self._tracing.current(span):
                yield span
        finally:
            span.end()


def note(span: Span, outcome: Outcome) -> None:
    """Mark the span of a body as failed if its outcome is an error."""
    if outcome.error is not None:
        span.fail(f"{outcome.error.type}: {outcome.error.text}")
