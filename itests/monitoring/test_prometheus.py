"""The Prometheus of Debian scrapes a cluster with the configuration of compose.yaml, and every panel of the dashboard has data."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import pytest
import yaml

import boki
from boki_cli.demo.local_cluster import LocalCluster, Place
from boki_common.net.lasting_ports import lasting_port
from itests.support.processes import BOKI

pytestmark = [pytest.mark.prometheus, pytest.mark.processes, pytest.mark.timeout(240)]

MONITORING: Final = Path(__file__).parents[2] / "deploy/monitoring"
PROMETHEUS: Final = shutil.which("prometheus")
LOOPBACK: Final = "127.0.0.1"
ROLES: Final = (("bookie", 3), ("sequencer", 2), ("engine", 2), ("controller", 2))
EVERY: Final = "1s"
SOON: Final = {"BOKI_ENGINE_CLOCK_CHECK_S": "2"}
"""A panel is of what engines compare once a minute."""
WINDOW: Final = "15s"
"""Stands for `$__rate_interval`, which Grafana makes of the scrape interval."""


class Panel(NamedTuple):
    """One query of the dashboard."""

    title: str
    expression: str


def panels() -> list[Panel]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [Panel(one["title"], target["expr"]) for one in dashboard["panels"] for target in one.get("targets", ())]


def configuration(pages: Mapping[str, int], token: Path) -> str:
    """That of compose.yaml, with pages of this machine in place of the containers'."""
    said: Any = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    said["global"] = {"scrape_interval": EVERY, "evaluation_interval": EVERY}
    (job,) = said["scrape_configs"]
    job["authorization"]["credentials_file"] = str(token)
    for group in job["static_configs"]:
        group["targets"] = [f"{LOOPBACK}:{pages[target.partition(':')[0]]}" for target in group["targets"]]
    return str(yaml.safe_dump(said))


@asynccontextmanager
async def process(*command: str, log: Path, environment: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """Runs until it is left, and ends with this process."""
    with log.open("wb") as out:
        one = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out, env=environment)
    try:
        yield
    finally:
        if one.returncode is None:
            one.terminate()
        await one.wait()


async def query(http: aiohttp.ClientSession, url: str, expression: str) -> Sequence[Any]:
    async with http.get(f"{url}/api/v1/query", params={"query": expression}) as answer:
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return ()  # it begins
        said = await answer.json()
    assert said["status"] == "success", said
    return list(said["data"]["result"])


async def some_work(client: boki.Client, http: aiohttp.ClientSession, gateway: str, token: str) -> None:
    """Appends, a read, and a request over HTTP."""
    book = client.book("orders")
    await asyncio.gather(*(book.append(b"%d" % number, tags=["x"]) for number in range(50)))
    await book.check_tail("x")
    try:
        async with http.get(
            f"{gateway}/v1/books/orders/records/tail", headers={"Authorization": f"Bearer {token}"}
        ) as answer:
            await answer.read()
    except aiohttp.ClientConnectionError:
        pass  # it begins


async def test_every_panel_of_the_dashboard_has_data(tmp_path: Path) -> None:
    if PROMETHEUS is None:
        pytest.skip("no prometheus on this machine; on Debian: apt-get install prometheus")
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("0123456789abcdef0123456789abcdef\n")
    names = [f"{kind}-{number}" for kind, count in ROLES for number in range(1, count + 1)]
    pages = {name: lasting_port() for name in [*names, "gateway"]}
    listen = {name: {"BOKI_METRICS_LISTEN": f"{LOOPBACK}:{port}"} for name, port in pages.items()}
    places = {name: Place(settings=listen[name]) for name in names}
    server, http_port = f"{LOOPBACK}:{lasting_port()}", lasting_port()
    (tmp_path / "prometheus.yml").write_text(configuration(pages, token))
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            LocalCluster(
                tmp_path, sequencers=2, engines=2, controllers=2, settings=SOON, token_file=token, places=places
            )
        )
        gateway = (
            *(*BOKI, "gateway", "--url", cluster.url.partition("?")[0]),
            *("--metadata", cluster.metadata_uri, "--port", str(http_port), "--token-file", str(token)),
        )
        await stack.enter_async_context(
            process(*gateway, log=tmp_path / "gateway.log", environment={**os.environ, **listen["gateway"]})
        )
        scraping = (
            *(PROMETHEUS, f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address={server}"),
            f"--storage.tsdb.path={tmp_path / 'prometheus'}",
        )
        await stack.enter_async_context(process(*scraping, log=tmp_path / "prometheus.log"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        work = partial(some_work, client, http, f"http://{LOOPBACK}:{http_port}", token.read_text().strip())
        try:
            await _until_all_have_data(http, f"http://{server}", work)
        except TimeoutError as error:
            for name in ("prometheus.log", "gateway.log"):
                error.add_note(f"{name}:\n{(tmp_path / name).read_text()[-2000:]}")
            raise
        up = await query(http, f"http://{server}", 'sum by (role) (up{job="boki"})')
        assert {row["metric"]["role"]: int(row["value"][1]) for row in up} == {**dict(ROLES), "gateway": 1}


async def _until_all_have_data(http: aiohttp.ClientSession, url: str, work: Callable[[], Awaitable[None]]) -> None:
    missing = panels()
    assert len(missing) > 15
    async with asyncio.timeout(150):
        while missing:
            await work()
            try:
                found = [await query(http, url, one.expression.replace("$__rate_interval", WINDOW)) for one in missing]
            except aiohttp.ClientConnectionError:
                continue  # it begins
            missing = [one for one, rows in zip(missing, found, strict=True) if not any(map(is_number, rows))]


def is_number(row: Any) -> bool:
    return str(row["value"][1]) != "NaN"
