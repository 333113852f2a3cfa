"""The page of metrics and health."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from boki_common.errors import SettingsError
from boki_common.http.metrics_page import start_metrics_page
from boki_common.metrics import GAUGE, MetricDefinition, Metrics

QUEUE = MetricDefinition("boki_test_queue_bytes", GAUGE, "bytes", "Bytes that wait.")


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_page_shows_metrics_and_health(http: aiohttp.ClientSession) -> None:
    faults: list[str] = []
    metrics = Metrics()
    metrics.gauge(QUEUE).set(5)
    page = await start_metrics_page(metrics, host="127.0.0.1", port=0, faults=lambda: faults)
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
    first = await start_metrics_page(Metrics(), host="127.0.0.1", port=0)
    try:
        with pytest.raises(SettingsError, match=f"127.0.0.1:{first.port} is in use; choose another") as raised:
            await start_metrics_page(Metrics(), host="127.0.0.1", port=first.port)
        assert raised.value.port == first.port
    finally:
        await first.close()


def test_a_bookie_without_a_page_loads_no_web_server() -> None:
    script = "import sys, boki_bookie.bookie, boki_cli.roles; print([m for m in sys.modules if m == 'aiohttp'])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
