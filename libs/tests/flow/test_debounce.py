"""Debounced starts: one for many calls, with the newest arguments; and no call is lost between two rounds."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import App, Worker, debounce
from bokiflow.flow_events import PICKER, Started
from bokilib.log import Log
from bokilib.ports import BookPort
from bokilib.testing import crash_everywhere, while_alive
from libs.tests.flow.conftest import Inline, working


def search(ran: list[str]) -> App:
    app = App("search")

    @app.workflow
    async def index(what: str) -> str:
        ran.append(what)
        return what

    return app


async def test_many_calls_are_one_start_with_the_newest_arguments(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    app = search(ran)
    index = app.find("index")
    async with working(cluster, app) as worker:
        handles = [
            await worker.flow.debounce(index.call(f"{number}"), id="doc", quiet_s=2, at_most_s=100)
            for number in range(5)
        ]
        other = await worker.flow.debounce(index.call("else"), id="other", quiet_s=0.1)
        assert await other.result() == "else"
        assert await asyncio.gather(*(handle.result() for handle in handles)) == ["4"] * 5
        assert len({handle.id for handle in handles}) == 1 and sorted(ran) == ["4", "else"]
        again = await worker.flow.debounce(index.call("5"), id="doc", quiet_s=0.1)
        assert again.id != handles[0].id and await again.result() == "5"


async def test_calls_that_never_end_are_started_in_time(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    app = search(ran)
    index = app.find("index")
    async with working(cluster, app) as worker:
        number = 0
        async with asyncio.timeout(60):
            while len(ran) < 2:
                number += 1
                await worker.flow.debounce(index.call(f"{number}"), id="doc", quiet_s=1, at_most_s=1.2)
                await asyncio.sleep(0)
        last = await worker.flow.debounce(index.call("last"), id="doc", quiet_s=0.1)
        assert await last.result() == "last"
        assert ran[:2] == sorted(ran[:2], key=int)


async def test_a_call_at_the_moment_of_closing_is_in_this_round_or_the_next(cluster: MemoryCluster) -> None:
    """Calls come while the round decides that they are over; the last one is done, whatever came first."""
    for moment in range(0, 400, 25):
        ran: list[str] = []
        app = search(ran)
        index = app.find("index")
        client = await cluster.connect()
        async with Worker(app, client.book(f"book {moment}"), name="w", bodies=Inline()) as worker:
            first = await worker.flow.debounce(index.call("first"), id="doc", quiet_s=0.005)
            for _ in range(moment):
                await asyncio.sleep(0)
            last = await worker.flow.debounce(index.call("last"), id="doc", quiet_s=0.005)
            found = [await first.result(), await last.result()]
            assert found == (["last", "last"] if first.id == last.id else ["first", "last"]), moment
            assert ran == (["last"] if first.id == last.id else ["first", "last"])


async def test_a_crash_anywhere_starts_the_round_once() -> None:
    ran: list[str] = []

    async def work(book: BookPort) -> None:
        app = search(ran)
        async with Worker(app, book, name="w", bodies=Inline()) as worker:
            while True:
                try:
                    handle = await worker.flow.debounce(app.find("index").call("a"), id="doc", quiet_s=0.01)
                    break
                except boki.OutcomeUnknown:
                    pass
            assert await handle.result() == "a"

    async def program(book: BookPort) -> None:
        await while_alive(book, work(book))

    async def check(book: boki.Book) -> None:
        log, found = Log(book), []
        async for item in book.read():
            assert not isinstance(item, boki.Gap)
            for event in PICKER.of(item.seqnum, await log.open(item)):
                if isinstance(event, Started) and event.name == "index":
                    found.append(event.id)
        assert 1 <= len(found) <= 2 and len(set(found)) == len(found), (
            "a call that is repeated later may be a round of its own"
        )

    assert (await crash_everywhere(program, program, check)).runs > 10


@pytest.mark.parametrize(("quiet_s", "most_s"), [(0, 1), (2, 1), (-1, None)])
def test_times_that_mean_nothing_are_refused(quiet_s: float, most_s: float | None) -> None:
    call = search([]).find("index").call("a")
    with pytest.raises(boki.InvalidArgument, match="quiet_s"):
        debounce.checked(call, quiet_s, most_s)
