"""Spans of workflows, as an exporter in memory has them; none in a replay, and none without OpenTelemetry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from boki.testing import MemoryCluster
from bokiflow import App
from bokiflow.execute.open_telemetry import OpenTelemetry
from bokiflow.execute.traces import NoTracing, Spans
from libs.tests.flow.conftest import working


class Recorder:
    """An app, and the spans of its workers."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OpenTelemetry(self.provider)
        self.inside: list[int] = []
        app = self.app = App("shop")

        @app.step
        async def charge(cents: int) -> int:
            self.inside.append(get_current_span().get_span_context().span_id)
            if cents > 100:
                raise ValueError("too much")
            return cents

        @app.step
        def pack(count: int) -> int:
            self.inside.append(get_current_span().get_span_context().span_id)
            return count

        @app.workflow
        async def child(cents: int) -> int:
            return await charge(cents)

        @app.workflow
        async def checkout(cents: int) -> int:
            await pack.aio(1)
            return await child(cents) + await charge(cents)

        self.checkout = checkout

    def spans(self) -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found


def parent_of(span: ReadableSpan) -> int:
    return 0 if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def test_spans_have_who_did_what_for_whom(cluster: MemoryCluster) -> None:
    recorder = Recorder()
    async with working(cluster, recorder.app, tracing=recorder.tracing) as worker:
        with recorder.provider.get_tracer("t").start_as_current_span("request") as request:
            handle = await worker.start(recorder.checkout.call(5), id="x")
            assert await handle.result() == 10
        await asyncio.sleep(0)
    spans = recorder.spans()
    (start,), (main,), (begun,), (child,) = (
        spans[name] for name in ("start checkout", "workflow checkout", "start child", "workflow child")
    )
    assert parent_of(start) == request.get_span_context().span_id
    assert parent_of(main) == id_of(start) and parent_of(begun) == id_of(main) and parent_of(child) == id_of(begun)
    assert {parent_of(span) for span in spans["step charge"]} == {id_of(main), id_of(child)}
    assert parent_of(spans["step pack"][0]) == id_of(main)
    assert sorted(recorder.inside) == sorted(id_of(one) for one in (*spans["step charge"], *spans["step pack"]))
    assert len({span.context.trace_id for span in recorder.exporter.get_finished_spans() if span.context}) == 1
    assert main.attributes == {"boki.workflow.id": "x", "boki.workflow.name": "checkout", "boki.takeover": False}


async def test_what_fails_is_marked(cluster: MemoryCluster) -> None:
    recorder = Recorder()
    async with working(cluster, recorder.app, tracing=recorder.tracing) as worker:
        with pytest.raises(ValueError, match="too much"):
            await (await worker.start(recorder.checkout.call(500), id="x")).result()
    spans = recorder.spans()
    for name in ("step charge", "workflow child", "workflow checkout"):
        assert spans[name][0].status.status_code == StatusCode.ERROR and "too much" in str(
            spans[name][0].status.description
        )
    assert spans["step pack"][0].status.status_code == StatusCode.UNSET


async def test_a_replay_makes_no_span_of_what_was_done(cluster: MemoryCluster) -> None:
    recorder = Recorder()
    app = recorder.app

    @app.workflow
    async def waits() -> int:
        import bokiflow

        await recorder.checkout.function(1)
        await bokiflow.recv("go")
        return 1

    async with working(cluster, app, tracing=recorder.tracing) as worker:
        handle = await worker.start(waits.call(), id="x")
        while len(recorder.spans().get("step charge", [])) < 2:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
    done = len(recorder.exporter.get_finished_spans())
    async with working(cluster, app, tracing=recorder.tracing) as worker:
        handle = worker.handle("x", waits)
        await handle.signal("go")
        assert await handle.result() == 1
    after = recorder.exporter.get_finished_spans()[done:]
    assert [span.name for span in after] == ["workflow waits"]
    (span,) = after
    assert span.attributes is not None and span.attributes["boki.takeover"] is True
    (start,) = recorder.spans()["start waits"]
    assert parent_of(span) == id_of(start)


def test_without_open_telemetry_contexts_are_handed_on() -> None:
    spans = Spans(NoTracing())
    assert spans.start("checkout", "x", parent="00-a-b-01") == "00-a-b-01"
    with spans.body("x", "step", "charge", "0:1") as span:
        span.fail("no")
    spans.end("x")


class BrokenSpan:
    def __init__(self, breaks: str) -> None:
        self._breaks = breaks

    @property
    def traceparent(self) -> str:
        if self._breaks == "traceparent":
            raise RuntimeError("no context")
        return ""

    def fail(self, message: str) -> None:
        if self._breaks == "fail":
            raise SystemExit(3)

    def end(self) -> None:
        if self._breaks == "end":
            raise RuntimeError("the queue is full")


class BrokenTracing:
    """A source of spans with a mistake at one place."""

    def __init__(self, breaks: str) -> None:
        self._breaks = breaks

    def begin(self, name: str, parent: str, facts: Mapping[str, Any], *, link: str = "") -> BrokenSpan:
        if self._breaks == "begin":
            raise RuntimeError("no exporter")
        return BrokenSpan(self._breaks)

    @contextmanager
    def current(self, span: BrokenSpan) -> Iterator[None]:
        if self._breaks == "enter":
            raise RuntimeError("no context")
        try:
            yield
        finally:
            if self._breaks == "exit":
                raise RuntimeError("no context")


@pytest.mark.parametrize("breaks", ["begin", "traceparent", "enter", "exit", "fail", "end"])
async def test_spans_that_raise_hold_up_nothing(
    cluster: MemoryCluster, breaks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder()
    tracing: Any = BrokenTracing(breaks)
    async with working(cluster, recorder.app, tracing=tracing) as worker, asyncio.timeout(30):
        assert await (await worker.start(recorder.checkout.call(5), id="x")).result() == 10
        with pytest.raises(ValueError, match="too much"):
            await (await worker.start(recorder.checkout.call(500), id="y")).result()
    assert "span not recorded: its maker raised an error" in capsys.readouterr().err
