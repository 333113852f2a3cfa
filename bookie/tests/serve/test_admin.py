"""The administration page of a running bookie, asked over HTTP as an operator would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from boki_bookie.bookie import Bookie
from boki_bookie.serve.admin import BookieAdmin
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.layout import available_bookies
from boki_common.bookkeeper.status import V2Status
from boki_common.cluster_token import NO_TOKEN
from boki_common.errors import DiskFailed, SettingsError
from boki_common.metrics import Metrics
from boki_common.runtime.memory_disk import MemoryDisk

Start = Callable[..., Awaitable[Bookie]]
Json = dict[str, Any]


@pytest.fixture
def start(start: Start, disk: MemoryDisk) -> Start:
    """On one disk, and with a page."""
    return lambda *other, **changes: start(*(other or (disk,)), **{"admin_port": 0, **changes})


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Page:
    """Asks the page of a bookie."""

    def __init__(self, http: aiohttp.ClientSession, admin: BookieAdmin | None) -> None:
        assert admin is not None
        self._http = http
        self.url = f"http://{admin.address}"

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Json]:
        async with self._http.request(method, self.url + path, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Json:
        status, value = await self.ask("GET", path)
        assert status == 200, value
        return value

    async def reasons(self) -> list[str]:
        status, value = await self.ask("GET", "/health")
        assert status == (503 if value.get("reasons") else 200)
        return [reason["reason"] for reason in value.get("reasons", [])]


async def test_a_page_there_is_only_when_it_is_asked_for(start: Start) -> None:
    bookie = await start()
    assert bookie.admin is not None and bookie.admin.address.host == "127.0.0.1"
    await bookie.close()


async def test_info_and_settings(start: Start, http: aiohttp.ClientSession, disk: MemoryDisk) -> None:
    bookie = await start()
    page = Page(http, bookie.admin)
    info = await page.get("/info")
    assert (info["bookie_id"], info["address"]) == (bookie.bookie_id, str(bookie.address))
    assert info["disk_free_bytes"] == await disk.free_bytes() < info["disk_total_bytes"]
    assert info["uptime_s"] >= 0 and info["version"]
    config = await page.get("/config")
    assert (config["admin_port"], config["journal_segment_bytes"]) == (0, 16384)


async def test_ledgers_come_in_pages(start: Start, http: aiohttp.ClientSession, world: Any) -> None:
    bookie = await start()
    page = Page(http, bookie.admin)
    assert await page.get("/ledgers") == {"ledgers": [], "total": 0, "next": None}
    for ledger_id in (30, 10, 20):
        await world.put(bookie.storage, *(world.add(ledger_id, entry, recovery=True) for entry in (0, 1, 4)))
    await world.fence(bookie.storage, 20)
    first = await page.get("/ledgers?limit=2")
    assert [(one["ledger_id"], one["fenced"]) for one in first["ledgers"]] == [(10, False), (20, True)]
    assert (first["total"], first["next"]) == (3, 20)
    second = await page.get(f"/ledgers?limit=2&after={first['next']}")
    assert [one["ledger_id"] for one in second["ledgers"]] == [30] and second["next"] is None
    one = await page.get("/ledgers/30")
    assert (one["entries"], one["last_entry"], one["entry_ranges"]) == (3, 4, [[0, 1], [4, 4]])
    assert one["bytes"] == 3 * len(world.body(30, 0))
    assert not one["limbo"]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/ledgers/8", 404, "knows no ledger 8"),
        ("/ledgers/x", 400, "expected the number of a ledger, found 'x'"),
        ("/ledgers/99999999999999999999", 400, "expected the number"),
        ("/ledgers?limit=0", 400, "limit: expected a number from 1 to 1000, found '0'"),
        ("/ledgers?after=-2", 400, "after: expected a number from -1"),
        ("/nothing", 404, "expected one of the paths, found /nothing"),
    ],
)
async def test_wrong_questions(start: Start, http: aiohttp.ClientSession, path: str, status: int, message: str) -> None:
    page = Page(http, (await start()).admin)
    found, value = await page.ask("GET", path)
    assert found == status and message in value["error"]
    if path == "/nothing":
        assert "GET /ledgers/{ledger_id}" in value["paths"] and "PUT /state/readonly" in value["paths"]


async def test_an_administrator_makes_it_read_only_and_takes_that_back(
    start: Start, http: aiohttp.ClientSession, world: Any
) -> None:
    bookie = await start()
    page = Page(http, bookie.admin)
    await world.ledger(7, bookie.bookie_id)
    assert await page.reasons() == []
    assert await page.ask("PUT", "/state/readonly") == (200, {"read_only": True, "by": ["administrator"]})
    assert await world.put(bookie.storage, world.add(7, 0)) == [V2Status.READ_ONLY]
    assert await world.put(bookie.storage, world.add(7, 0, recovery=True)) == [V2Status.OK]
    while await available_bookies(world.store):
        await asyncio.sleep(0)
    assert "read_only" in await page.reasons()
    assert await page.ask("DELETE", "/state/readonly") == (200, {"read_only": False, "by": []})
    assert await world.put(bookie.storage, world.add(7, 1)) == [V2Status.OK]
    while await available_bookies(world.store) != [bookie.bookie_id]:
        await asyncio.sleep(0)
    assert await page.reasons() == []


async def test_a_full_disk_stays_a_reason_when_the_administrator_takes_his_word_back(
    start: Start, http: aiohttp.ClientSession, disk: MemoryDisk
) -> None:
    free = await disk.free_bytes()
    bookie = await start(read_only_below_bytes=free * 2, writable_above_bytes=free * 2)
    page = Page(http, bookie.admin)
    assert "disk_full" in await page.reasons()
    assert (await page.ask("PUT", "/state/readonly"))[1]["by"] == ["administrator", "disk"]
    assert (await page.ask("DELETE", "/state/readonly"))[1] == {"read_only": True, "by": ["disk"]}


async def test_a_store_that_failed_and_metadata_that_do_not_answer_are_reasons(
    start: Start, http: aiohttp.ClientSession, world: Any
) -> None:
    bookie = await start()
    page = Page(http, bookie.admin)
    world.store.disconnect()
    assert await page.reasons() == ["no_metadata"]
    world.store.reconnect()
    assert isinstance(bookie.storage, Storage)
    bookie.storage.fail(DiskFailed("gone"))
    await bookie.failed
    assert "failed" in await page.reasons()


async def test_metrics_are_on_the_page(start: Start, http: aiohttp.ClientSession) -> None:
    page = Page(http, (await start()).admin)
    async with http.get(page.url + "/metrics") as response:
        assert response.status == 200
        assert "boki_bookie_ledgers" in await response.text()


async def test_a_port_in_use_is_refused_and_the_bookie_does_not_start(start: Start, world: Any) -> None:
    first = await start()
    assert first.admin is not None
    with pytest.raises(SettingsError, match=r"admin page.*is in use; choose another admin_port"):
        await start(MemoryDisk("/other"), admin_port=first.admin.address.port)
    assert await available_bookies(world.store) == [first.bookie_id]


class Collector:
    """What is asked of garbage collection."""

    def __init__(self) -> None:
        self.requests: list[bool] = []

    def gc_state(self) -> Json:
        return {"running": False}

    def request_gc(self, *, major: bool) -> None:
        self.requests.append(major)


async def test_each_directory_reports_its_garbage_collection(start: Start, http: aiohttp.ClientSession) -> None:
    page = Page(http, (await start()).admin)
    (state,) = (await page.get("/gc"))["directories"]
    assert state["is_running"] in (True, False) and state["deleted_ledgers"] == 0


async def test_garbage_collection_is_shown_and_asked_for(start: Start, http: aiohttp.ClientSession, world: Any) -> None:
    collector = Collector()
    both: list[Any] = [collector, collector]
    settings = world.tiny(admin_port=0)
    admin = BookieAdmin(await start(), settings, Metrics(), storages=both, allowed_hosts=(), token=NO_TOKEN)
    await admin.listen()
    try:
        page = Page(http, admin)
        assert await page.get("/gc") == {"directories": [{"running": False}] * 2}
        assert await page.ask("POST", "/gc") == (202, {"requested": "minor"})
        assert await page.ask("POST", "/gc", json={"major": True}) == (202, {"requested": "major"})
        for wrong in ({"major": 1}, {"majr": True}):
            assert (await page.ask("POST", "/gc", json=wrong))[0] == 400
        assert (await page.ask("POST", "/gc", data=b"{"))[0] == 400
        assert collector.requests == [False, False, True, True]
    finally:
        await admin.close()
