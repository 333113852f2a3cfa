"""All metrics of a gateway. Counted per request."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import counter, gauge, histogram

REQUESTS: Final = counter("boki_gateway_requests_total", "Requests answered, by route and status.", "route", "status")
REQUEST_SECONDS: Final = histogram(
    "boki_gateway_request_seconds", "From a request to its answer; waiting included.", "route"
)
STREAMS: Final = gauge("boki_gateway_streams", "Open event streams.")
