"""Metrics: the rules for names, one registry per process, and the page."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from boki_common.errors import SettingsError
from boki_common.metrics import COUNTER, GAUGE, HISTOGRAM, MetricDefinition, MetricKind, Metrics, MetricsPage

ADDS = MetricDefinition("boki_test_adds_total", COUNTER, "", "Entries added.", labels=("ledger",))
QUEUE = MetricDefinition("boki_test_queue_bytes", GAUGE, "bytes", "Bytes that wait.")
SYNC = MetricDefinition("boki_test_sync_seconds", HISTOGRAM, "seconds", "Time of one sync.", buckets=(0.1, 1.0))


@pytest.mark.parametrize(
    ("name", "kind", "unit", "help_text"),
    [
        ("adds_total", COUNTER, "", "Not ours."),
        ("boki_Adds_total", COUNTER, "", "Not snake case."),
        ("boki_adds", COUNTER, "", "A counter without total."),
        ("boki_queue_total", GAUGE, "", "A gauge with total."),
        ("boki_sync", HISTOGRAM, "seconds", "Without its unit."),
        ("boki_sync_ms", HISTOGRAM, "ms", "Not a base unit."),
        ("boki_queue", GAUGE, "", "no sentence"),
    ],
)
def test_definitions_that_break_a_rule(name: str, kind: MetricKind, unit: str, help_text: str) -> None:
    with pytest.raises(AssertionError):
        MetricDefinition(name, kind, unit, help_text)


def test_the_same_definition_gives_the_same_metric() -> None:
    metrics = Metrics()
    assert metrics.counter(ADDS) is metrics.counter(ADDS)
    assert Metrics().counter(ADDS) is not metrics.counter(ADDS)


def test_two_definitions_of_one_name_are_a_programmers_error() -> None:
    metrics = Metrics()
    metrics.gauge(QUEUE)
    with pytest.raises(AssertionError, match="two definitions"):
        metrics.gauge(MetricDefinition("boki_test_queue_bytes", GAUGE, "bytes", "Something else."))


def test_a_definition_is_made_as_its_kind_only() -> None:
    metrics = Metrics()
    for make in (metrics.counter, metrics.gauge):
        with pytest.raises(AssertionError, match="is a histogram"):
            make(SYNC)
    with pytest.raises(AssertionError, match="is a gauge"):
        metrics.histogram(QUEUE)


def test_rendering() -> None:
    metrics = Metrics()
    metrics.counter(ADDS).labels("7").inc(3)
    metrics.gauge(QUEUE).set(12)
    metrics.histogram(SYNC).observe(0.5)
    page = metrics.render().decode()
    assert 'boki_test_adds_total{ledger="7"} 3.0' in page
    assert "# HELP boki_test_queue_bytes Bytes that wait." in page
    assert 'boki_test_sync_seconds_bucket{le="0.1"} 0.0' in page
    assert 'boki_test_sync_seconds_bucket{le="1.0"} 1.0' in page


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_page_shows_metrics_and_health(http: aiohttp.ClientSession) -> None:
    faults: list[str] = []
    metrics = Metrics()
    metrics.gauge(QUEUE).set(5)
    page = await MetricsPage.start(metrics, host="127.0.0.1", port=0, faults=lambda: faults)
    try:
        url = f"http://127.0.0.1:{page.port}"
        async with http.get(url + "/metrics") as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/plain")
            assert "boki_test_queue_bytes 5.0" in await response.text()
        async with http.get(url + "/healthz") as response:
            assert (response.status, await response.json()) == (200, {"status": "ok"})
        faults.append("the disk is full")
        async with http.get(url + "/healthz") as response:
            assert response.status == 503
            assert await response.json() == {"status": "failing", "faults": ["the disk is full"]}
    finally:
        await page.close()
    await page.close()


async def test_a_port_in_use_is_named_with_a_remedy() -> None:
    first = await MetricsPage.start(Metrics(), host="127.0.0.1", port=0)
    try:
        with pytest.raises(SettingsError, match=f"127.0.0.1:{first.port} is in use; choose another") as raised:
            await MetricsPage.start(Metrics(), host="127.0.0.1", port=first.port)
        assert raised.value.port == first.port
    finally:
        await first.close()
