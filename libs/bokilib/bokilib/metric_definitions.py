"""Metrics of the common ground of libraries."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import COUNTER, GAUGE, MetricDefinition

CARRY_ROUNDS: Final = MetricDefinition(
    "boki_carry_rounds_total", COUNTER, "", "Rounds in which this process carried forward what has no owner."
)
CARRIED: Final = MetricDefinition(
    "boki_carry_states_total",
    COUNTER,
    "",
    "States that it appended anew, so that the terms they were in may go.",
    ("library",),
)
CARRY_UNREADABLE: Final = MetricDefinition(
    "boki_carry_unreadable_total",
    COUNTER,
    "",
    "What it could not read, and left where it is: it keeps its term.",
    ("library",),
)
CARRY_LEFT: Final = MetricDefinition(
    "boki_carry_left_records",
    GAUGE,
    "",
    "Records older than a term that the last round left to their owners, by library.",
    ("library",),
)
