"""Metrics: the rules for names, one registry per process."""

from __future__ import annotations

import pytest

from boki_common.metrics import COUNTER, GAUGE, HISTOGRAM, Counter, MetricDefinition, MetricKind, Metrics

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


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    metrics = Metrics()
    for seconds in (0.05, 0.1, 0.5, 7.0):
        metrics.histogram(SYNC).observe(seconds)
    page = metrics.render().decode()
    for line in (
        'boki_test_sync_seconds_bucket{le="0.1"} 2.0',
        'boki_test_sync_seconds_bucket{le="1.0"} 3.0',
        'boki_test_sync_seconds_bucket{le="+Inf"} 4.0',
        "boki_test_sync_seconds_count 4.0",
        "boki_test_sync_seconds_sum 7.65",
    ):
        assert line in page.splitlines()


def test_labels_name_one_counter_each_by_order_or_by_name() -> None:
    adds = Metrics().counter(ADDS)
    adds.labels("7").inc()
    adds.labels(ledger="7").inc(2)
    adds.labels("8").inc()
    assert {values: one.value for values, one in adds.rows().items()} == {("7",): 3, ("8",): 1}
    for counter, values in ((adds, ("7", "8")), (adds, ()), (Counter(), ("7",))):
        with pytest.raises(AssertionError, match="expected labels"):
            counter.labels(*values)
