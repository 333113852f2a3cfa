"""All metrics of a gateway. Counted per request."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import COUNTER, GAUGE, HISTOGRAM, MetricDefinition

REQUESTS: Final = MetricDefinition(
    "boki_gateway_requests_total", COUNTER, "", "Requests answered, by route and status.", ("route", "status")
)
REQUEST_SECONDS: Final = MetricDefinition(
    "boki_gateway_request_seconds", HISTOGRAM, "seconds", "From a request to its answer; waiting included.", ("route",)
)
STREAMS: Final = MetricDefinition("boki_gateway_streams", GAUGE, "", "Open event streams.")
