"""The HTTP page of a process that shows its metrics and its health.

    page = await start_metrics_page(metrics, host="127.0.0.1", port=7090, faults=lambda: [])

`/metrics` is Prometheus' text format, `/healthz` answers 200 `{"status": "ok"}`, or 503 with the list of faults, and `/readyz` the
same of what keeps the process from being of use: an index that is behind, a disk that takes no writes. A process that has no page
does not import this, nor the web server below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from boki_common import logs
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.http.http_page import HttpPage, Serve, answer
from boki_common.metric_definitions import LOG_LINES_LOST
from boki_common.metrics import Metrics


def add_metrics(page: HttpPage, metrics: Metrics) -> None:
    """Serves `/metrics` on a page, in Prometheus' text format."""

    lost = metrics.counter(LOG_LINES_LOST)

    async def serve(_request: web.Request) -> web.Response:
        lost.value = logs.lost_lines()
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    page.get("/metrics", "Metrics in Prometheus' text format.", serve)


async def start_metrics_page(
    metrics: Metrics,
    *,
    host: str,
    port: int,
    faults: Callable[[], Sequence[str]] = tuple,
    unready: Callable[[], Sequence[str]] = tuple,
    allowed_hosts: Sequence[str] = (),
    token: ClusterToken = NO_TOKEN,
) -> HttpPage:
    """Serves `/metrics`, `/healthz` and `/readyz` of one process on `host:port`; port 0 picks a free one.

    Args:
        faults: sentences that say why the process is not healthy; none means healthy.
        unready: sentences that say why it is of no use yet, or now; none means ready.
        allowed_hosts: names that Host may have beside the usual ones, see `host_rules`.
        token: to be shown by every request, if the cluster has one.

    Raises:
        SettingsError: the address cannot be bound.
    """
    page = HttpPage("metrics page", setting="metrics port", allowed_hosts=allowed_hosts, token=token)
    add_metrics(page, metrics)
    health = _well_unless(faults, "ok", "failing", "faults")
    page.get("/healthz", "Whether the process is healthy, and why not.", health)
    readiness = _well_unless(unready, "ready", "not ready", "reasons")
    page.get("/readyz", "Whether the process is of use now, and why not.", readiness)
    await page.listen(host, port)
    return page


def _well_unless(found_now: Callable[[], Sequence[str]], well: str, ill: str, name: str) -> Serve:
    """Answers that all is well, or 503 with what was found."""

    async def serve(_request: web.Request) -> web.Response:
        found = list(found_now())
        return answer({"status": ill, name: found}, 503) if found else answer({"status": well})

    return serve
