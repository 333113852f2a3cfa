"""Spans on the API of OpenTelemetry, for `traces` alone. Nothing is recorded unless the program sets up an SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_FORMAT: Final = TraceContextTextMapPropagator()


def _context(traceparent: str) -> SpanContext:
    return trace.get_current_span(_FORMAT.extract({"traceparent": traceparent}, Context())).get_span_context()


class OpenTelemetrySpan:
    """A span of OpenTelemetry. `inner` is the span of its API."""

    def __init__(self, inner: trace.Span) -> None:
        self.inner: Final = inner

    @property
    def traceparent(self) -> str:
        """See `traces.Span`."""
        found = self.inner.get_span_context()
        if not found.is_valid:
            return ""
        flags = found.trace_flags & TraceFlags.SAMPLED
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{flags:02x}"

    def fail(self, message: str) -> None:
        """See `traces.Span`."""
        self.inner.set_status(Status(StatusCode.ERROR, message))

    def end(self) -> None:
        """See `traces.Span`."""
        self.inner.end()


class OpenTelemetry:
    """See the module."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Record to a provider, by default that of the process, also if it is set up later."""
        self._tracer: Final = trace.get_tracer("bokiflow", tracer_provider=provider)

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> OpenTelemetrySpan:
        """See `traces.Tracing`."""
        around: Context | None = None
        if parent or link:
            around = trace.set_span_in_context(trace.NonRecordingSpan(_context(parent)), Context())
        linked = _context(link)
        links = [Link(linked)] if linked.is_valid else []
        kind = SpanKind.PRODUCER if name.startswith("start ") else SpanKind.INTERNAL
        return OpenTelemetrySpan(self._tracer.start_span(name, around, kind, dict(facts), links))

    @contextmanager
    def current(self, span: object) -> Iterator[None]:
        """See `traces.Tracing`."""
        assert isinstance(span, OpenTelemetrySpan)
        with trace.use_span(span.inner, end_on_exit=False, record_exception=True, set_status_on_exception=False):
            yield
