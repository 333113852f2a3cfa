"""The page of machines over HTTP, read as a browser without JavaScript would: what is shown, and that names stay text."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

import boki
from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokirsm import Ref, Rsm
from bokirsm_tools.page import page
from libs.tests.conftest import SetClock
from libs.tests.html_page import Page
from libs.tests.rsm.operated import APP, Gate, Item, fill, run
from libs.tests.rsm.test_reading import Newer

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\x1b[31m\u202e"


@pytest.fixture
async def client(cluster: MemoryCluster) -> boki.Client:
    return await cluster.connect()


@pytest.fixture
async def requester(cluster: MemoryCluster, clock: SetClock) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(page(clock),)) as one:
        yield one


async def look(requester: Requester, status: int = 200, /, **query: str) -> Page:
    reply = await requester.get("/pages/rsm", **query)
    assert reply.status == status, reply.body.decode()
    return Page(reply.body.decode())


async def test_without_a_book_it_asks_for_one(requester: Requester) -> None:
    assert "Name the book to see its machines" in (await look(requester)).text
    assert "there are no machines in the book 'nothing'" in (await look(requester, book="nothing")).text
    assert "there is no app 'x' in the book 'b'" in (await look(requester, 404, book="b", app="x")).text


async def test_a_book_lists_its_machines_and_filters_them(
    requester: Requester, client: boki.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client)
    shown = await look(requester, book="shop")
    assert (
        "divider shop, partition 53 Divider faulted run Divide: ZeroDivisionError: division by zero no living host: host-1."
        in shown.text
    )
    assert "ended shop, partition 60 Alarm halted run 0 2 " in shown.text
    assert "/pages/rsm?book=shop&id=shop%2F51%2Fgate" in shown.links
    assert 'data-events="/v1/books/shop/events' in shown.main
    faulted = await look(requester, book="shop", faulted="1")
    assert "divider" in faulted.text and "gate" not in faulted.text and 'selected=""' in faulted.main
    closed = await look(requester, book="shop", app="shop", state="closed")
    assert "gate" in closed.text and "divider" not in closed.text
    assert "There is none." in (await look(requester, book="shop", **{"class": "Unknown"})).text
    monkeypatch.setattr("bokirsm_tools.page.LIMIT", 4)
    first = await look(requester, book="shop")
    (more,) = [link for link in first.links if "after" in link]
    behind = Page((await requester.get(more)).body.decode())
    assert "gate" in behind.text and "divider" not in behind.text and "data-events" not in behind.main


async def test_a_machine_has_its_fault_and_the_commands_that_end_it(requester: Requester, client: boki.Client) -> None:
    await fill(client)
    shown = await look(requester, book="shop", id="divider")
    assert "Status faulted App shop Class Divider State run Commits 2 Changed" in shown.text
    assert "Partition 53 No host no living host: host-1." in shown.text
    assert "Fault Divide: ZeroDivisionError: division by zero since" in shown.text
    assert "result = 1 / e.by" in shown.text
    assert "boki rsm resume shop/53/divider --book shop has the event handled again" in shown.text
    assert "boki rsm skip shop/53/divider --book shop drops it" in shown.text
    assert "done 1" in shown.text and "2 in the inbox, 0 deferred" in shown.text
    assert "faults Divide: ZeroDivisionError: division by zero" in shown.text
    assert 'data-events="/v1/books/shop/events?tag=rsm%2Fp%2Fshop%2F53' in shown.main
    await Rsm(APP, client.book("shop")).skip(Ref.parse("shop/53/divider"))
    await run(client)
    mended = await look(requester, book="shop", id="divider")
    assert "Status ready" in mended.text and "boki rsm resume" not in mended.text and "Nothing waits." in mended.text


async def test_a_machine_has_its_timers_tables_and_deferred_events(requester: Requester, client: boki.Client) -> None:
    await fill(client)
    assert "wake: Ring timer" in (await look(requester, book="shop", id="alarm")).text
    assert 'freq["to"] 2' in (await look(requester, book="shop", id="counter")).text
    gate = await look(requester, book="shop", id="gate")
    assert "0 in the inbox, 2 deferred" in gate.text and 'Item{"text":"x"} deferred' in gate.text


async def test_a_long_timeline_has_parts(
    requester: Requester, client: boki.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client)
    whole = await look(requester, book="shop", id="counter")
    monkeypatch.setattr("bokirsm_tools.page.ENTRIES", 3)
    parts = [await look(requester, book="shop", id="counter")]
    while older := [link for link in parts[-1].links if "before" in link]:
        parts.append(Page((await requester.get(older[0])).body.decode()))
        assert "data-events" not in parts[-1].main and "Show what it does now" in parts[-1].text
    rows = [re.findall(r"<tr>(.*?)</tr>", one.main[one.main.index('id="timeline"') :]) for one in (whole, *parts)]
    assert len(parts) == 7 and rows[0][1:] == [row for part in rows[1:] for row in part[1:]]
    await look(requester, 400, book="shop", id="counter", before="x")


async def test_what_this_program_cannot_read_is_said(requester: Requester, client: boki.Client) -> None:
    await fill(client)
    stream = tags.rsm_partition("shop", 53)
    await Log(client.book("shop")).append(Contribution((stream,), {}, (Newer("shop/53/divider"),)))
    shown = await look(requester, book="shop")
    assert "upgrade it" in shown.text and "gate" in shown.text and "divider" not in shown.text
    reply = await requester.get("/pages/rsm", book="shop", id="shop/53/divider")
    assert reply.status >= 400 and b"rsm.newer" in reply.body


async def test_a_machine_that_is_not_there_is_said(requester: Requester, client: boki.Client) -> None:
    await fill(client)
    assert "there is no machine 'x' in the book 'shop'" in (await look(requester, 404, book="shop", id="x")).text
    assert "there is no machine 'shop/7/x'" in (await look(requester, 404, book="shop", id="shop/7/x")).text


async def test_names_and_values_of_others_stay_text(requester: Requester, client: boki.Client) -> None:
    rsm = Rsm(APP, client.book("shop"))
    gate = await rsm.create(Gate, key=EVIL)
    await rsm.send(gate, Item(EVIL))
    await run(client)
    assert "alert(1)" in (await look(requester, book="shop")).text
    shown = await look(requester, book="shop", id=str(gate))
    assert "alert(1)" in shown.text and "\x1b" not in shown.main
