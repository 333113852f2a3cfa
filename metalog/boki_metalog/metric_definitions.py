"""All metrics of the sequencer."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import COUNTER, GAUGE, HISTOGRAM, MetricDefinition

TERM: Final = MetricDefinition(
    "boki_sequencer_term", GAUGE, "", "Term that this sequencer orders; 0 while it stands by.", ("log",)
)
ENTRIES: Final = MetricDefinition(
    "boki_sequencer_entries_total", COUNTER, "", "Metalog entries acknowledged by their quorum.", ("log",)
)
RECORDS: Final = MetricDefinition("boki_sequencer_records_total", COUNTER, "", "Records ordered.", ("log",))
REFUSED: Final = MetricDefinition(
    "boki_sequencer_refused_reports_total", COUNTER, "", "Reports for shards that are closed or cannot be so.", ("log",)
)
LAGGED: Final = MetricDefinition(
    "boki_sequencer_lagged_subscribers_total",
    COUNTER,
    "",
    "Subscribers dropped for taking entries too slowly.",
    ("log",),
)
ENTRY_SECONDS: Final = MetricDefinition(
    "boki_sequencer_entry_seconds", HISTOGRAM, "seconds", "From submitting a metalog entry to its quorum.", ("log",)
)
