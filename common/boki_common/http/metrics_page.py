"""The HTTP page of a process that shows its metrics and its health.

    page = await MetricsPage.start(metrics, host="127.0.0.1", port=7090, faults=lambda: [])

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
from boki_common.http.http_page import HttpPage, answer
from boki_common.metric_definitions import LOG_LINES_LOST
from boki_common.metrics import Metrics


def add_metrics(page: HttpPage, metrics: Metrics) -> None:
    """Serves `/metrics` on a page, in Prometheus' text format."""

    lost = metrics.counter(LOG_LINES_LOST)

    async def serve(_request: web.Request) -> web.Response:
        lost.value = logs.lost_lines()
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    page.get("/metrics", "Metrics in Prometheus' text format.", serve)


class MetricsPage:
    """The HTTP page of one process: `/metrics`, `/healthz` and `/readyz`."""

    def __init__(
        self,
        metrics: Metrics,
        faults: Callable[[], Sequence[str]],
        unready: Callable[[], Sequence[str]],
        allowed_hosts: Sequence[str] = (),
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self._faults = faults
        self._unready = unready
        self._page = HttpPage("metrics page", setting="metrics port", allowed_hosts=allowed_hosts, token=token)
        add_metrics(self._page, metrics)
        self._page.get("/healthz", "Whether the process is healthy, and why not.", self._serve_health)
        self._page.get("/readyz", "Whether the process is of use now, and why not.", self._serve_readiness)

    @classmethod
    async def start(
        cls,
        metrics: Metrics,
        *,
        host: str,
        port: int,
        faults: Callable[[], Sequence[str]] = tuple,
        unready: Callable[[], Sequence[str]] = tuple,
        allowed_hosts: Sequence[str] = (),
        token: ClusterToken = NO_TOKEN,
    ) -> MetricsPage:
        """Listens on `host:port`; port 0 picks a free one, see `port`.

        Args:
            faults: sentences that say why the process is not healthy; none means healthy.
            unready: sentences that say why it is of no use yet, or now; none means ready.
            allowed_hosts: names that Host may have beside the usual ones, see `host_rules`.
            token: to be shown by every request, if the cluster has one.

        Raises:
            SettingsError: the address cannot be bound.
        """
        page = cls(metrics, faults, unready, allowed_hosts, token)
        await page._page.listen(host, port)
        return page

    @property
    def port(self) -> int:
        """The port really bound."""
        return self._page.port

    async def close(self) -> None:
        """Stops listening. Idempotent."""
        await self._page.close()

    async def _serve_health(self, _request: web.Request) -> web.Response:
        faults = list(self._faults())
        if faults:
            return answer({"status": "failing", "faults": faults}, 503)
        return answer({"status": "ok"})

    async def _serve_readiness(self, _request: web.Request) -> web.Response:
        reasons = list(self._unready())
        if reasons:
            return answer({"status": "not ready", "reasons": reasons}, 503)
        return answer({"status": "ready"})
