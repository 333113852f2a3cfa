"""Tests of what the applications share: the service and its client, the load, and the status page.

    .venv/bin/python -m pytest examples/test_apps.py

They start no processes: services run in the test, over a cluster in memory or with answers that the test chooses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokistore import BokiStore
from examples.apps import service_client
from examples.apps.application import Answer, Request
from examples.apps.load import LoadGenerator
from examples.apps.page import OperationRow, SnapshotCheck, TrialStatus, page
from examples.apps.row_store import ObjectRowStore
from examples.apps.service import Service, serving
from examples.apps.service_client import NoAnswer, ServiceClient
from examples.apps.trial import operation_rows
from examples.hotel.application import HOTEL


class Answers:
    """Service whose answers a test chooses.

    Attributes:
        left: HTTP status of each next answer; None closes the connection. Afterwards the status is 200.
        asked: ids of the requests so far.
    """

    def __init__(self, *answers: int | None) -> None:
        self.left = list(answers)
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((await request.json())["id"])
        status = self.left.pop(0) if self.left else 200
        if status is None:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"value": 7, "refused": ""}, status=status or 500)

    async def alive(self, _: web.Request) -> web.Response:
        return web.Response()


async def asking(answers: Answers, ask: Callable[[ServiceClient], Awaitable[Any]]) -> Any:
    async with serving(answers, 0) as port, ServiceClient([f"http://127.0.0.1:{port}"]) as calls:  # type: ignore[arg-type]  # has the two handlers of a Service
        return await ask(calls)


async def test_a_request_is_repeated_until_its_result_is_definite() -> None:
    answers = Answers(503, None)
    found = await asking(answers, lambda calls: calls.ask(Request("x", "login", ())))
    assert (found.value, found.refused, found.attempts) == (7, "", 3)
    assert answers.asked == ["x"] * 3, "always under the same id"


async def test_a_request_without_a_definite_result_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "GIVE_UP_S", 0.05)
    with pytest.raises(NoAnswer, match="login x"):
        await asking(Answers(*[503] * 100), lambda calls: calls.ask(Request("x", "login", ())))


async def test_an_open_loop_sends_when_it_is_due_and_a_closed_one_after_an_answer() -> None:
    async def ask(calls: ServiceClient) -> tuple[int, int]:
        load = LoadGenerator(HOTEL, calls, HOTEL.mix, name="t")
        await load.open(200, 0.1)
        made = len(load.answers)
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, stop.set)
        await load.closed(2, stop)
        assert (load.faults, load.late) == ([], 0)
        assert len({answer.request.id for answer in load.answers}) == len(load.answers)
        return made, len(load.answers)

    made, all_made = await asking(Answers(), ask)
    assert made == 20
    assert all_made > made


async def test_a_service_answers_with_results_refusals_and_404() -> None:
    async with MemoryCluster() as cluster:
        data = ObjectRowStore(BokiStore(Log((await cluster.connect()).book("hotel"))))
        await data.fill({"hotel:1": {"capacity": 1, "left": 1}, "flight:1": {"capacity": 9, "left": 9}})
        service = Service(HOTEL, data)
        async with (
            service.worker,
            serving(service, 0) as port,
            ServiceClient([f"http://127.0.0.1:{port}"]) as calls,
        ):
            done = await calls.ask(Request("a", "reserve", ("ann", 1, 1)))
            refused = await calls.ask(Request("b", "reserve", ("ann", 1, 1)))
            wrong = await calls.ask(Request("b", "reserve", ("eve", 1, 1)))
            other = await calls.ask(Request("c", "reserve", ("ann",)))
            with pytest.raises(AssertionError, match="found 404"):
                await calls.ask(Request("d", "fly", ()))
        await data.close()
    assert (done.value, done.refused) == ("a", "")
    assert (refused.refused, wrong.refused, other.refused) == ("SoldOut", "IdReused", "InvalidArgument")


def test_times_by_operation() -> None:
    some = [Answer(Request(str(ms), "login", ()), True, "", ms / 1_000, 1) for ms in range(1, 101)]
    rows = operation_rows([*some, Answer(Request("x", "reserve", ()), None, "SoldOut", 0.002, 1)])
    assert rows == [OperationRow("login", 100, 0, 51, 100), OperationRow("reserve", 1, 1, 2, 2)]


def standing(**changes: Any) -> TrialStatus:
    first = TrialStatus(
        "hotel <1>", 3.2, [5, 9], [OperationRow("login", 14, 0, 2.0, 9.0)], 3, [("engine", 2)], [], ["no <half>"], False
    )
    return first._replace(**changes)


def test_the_page_shows_rate_errors_kills_and_what_holds() -> None:
    text = page(standing())
    for part in ("hotel &lt;1&gt;", "9 requests in the last second", "3 attempts", "2 × engine", "no &lt;half&gt;"):
        assert part in text
    assert 'http-equiv="refresh"' in text
    ended = page(standing(ended=True, checks=[SnapshotCheck(9, 1_000, []), SnapshotCheck(12, 2_000, ["trip <b>"])]))
    assert "refresh" not in ended
    assert "after 9 s, 1,000 rows: all hold" in ended
    assert 'class="wrong">after 12 s, 2,000 rows: trip &lt;b&gt;' in ended
    assert "none yet" in page(standing(killed=[], rates=[]))
