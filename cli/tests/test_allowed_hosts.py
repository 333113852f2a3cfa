"""Every HTTP server of a process has the same rules of Host and Origin, however wide it is bound, and one setting names hosts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import aiohttp
import pytest

from boki.testing import MemoryCluster
from boki_cli import roles
from boki_cli.start.gateway_command import running_gateway
from boki_common.net.connection import Address

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {
    "127.0.0.1": 200, "localhost": 200, "10.1.2.3:80": 200, "[fd00::7]:80": 200, "log.example": 200, "LOG.example.:7080": 200,
    "evil.example": 403, "log.example.evil": 403, "127.0.0.1.evil.example": 403, "*": 403,
}  # fmt: skip


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
async def test_each_server_answers_addresses_and_named_hosts_only(tmp_path: Path, bound: str) -> None:
    flags = {
        "metadata": f"sqlite://{tmp_path}/metadata.db",
        "metrics_listen": f"{bound}:0",
        "bookie.admin_port": 0,
        "bookie.admin_host": bound,
        "allowed_hosts": ("log.example",),
        "insecure": True,
    }
    settings = roles.process_settings(None, flags)
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        parts = await stack.enter_async_context(roles.open_parts(settings))
        address = Address("127.0.0.1", 0)
        bookie = await stack.enter_async_context(
            roles.running_bookie(parts, settings, data=tmp_path / "bookie", address=address)
        )
        metrics = await stack.enter_async_context(
            roles.metrics_page(parts.metrics, settings, token=parts.token, faults=list)
        )
        cluster = await stack.enter_async_context(MemoryCluster())
        gateway = await stack.enter_async_context(
            running_gateway(cluster.url, settings, parts.metrics, address=Address(bound, 0), store=parts.metadata)
        )
        for server in (bookie.admin, metrics, gateway):
            url = f"http://127.0.0.1:{Address.parse(server).port}/metrics"
            for host, status in ASKED.items():
                async with http.get(url, headers={"Host": host}) as answer:
                    assert answer.status == status, (server, host)
            async with http.get(url, headers={"Origin": "http://evil.example"}) as answer:
                assert answer.status == 403, server
