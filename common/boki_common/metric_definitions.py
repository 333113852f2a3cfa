"""Metrics that every process has."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import counter

LOG_LINES_LOST: Final = counter(
    "boki_log_lines_lost_total",
    "Lines of the log that could not be written: standard error is full, stalled or closed.",
)
