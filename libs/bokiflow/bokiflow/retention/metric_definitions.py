"""Metrics of workers: what they collect, and whether they keep up."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import COUNTER, GAUGE, MetricDefinition

COLLECT_ROUNDS: Final = MetricDefinition(
    "boki_flow_collect_rounds_total",
    COUNTER,
    "",
    "Rounds in which this process trimmed what is not needed of workflows.",
)
COLLECT_CHECKED: Final = MetricDefinition(
    "boki_flow_collect_checked_total", COUNTER, "", "Ends of workflows that it looked at, each as often as it did."
)
COLLECTED: Final = MetricDefinition(
    "boki_flow_collected_total",
    COUNTER,
    "",
    "What it did: histories trimmed, ends repeated (tombs), ids forgotten, partitions checkpointed, living histories written anew.",
    ("what",),
)
COLLECT_LAG: Final = MetricDefinition(
    "boki_flow_collect_lag_seconds",
    GAUGE,
    "seconds",
    "By how much the oldest end was overdue to be repeated or forgotten when the last round began; 0: it keeps up.",
)
