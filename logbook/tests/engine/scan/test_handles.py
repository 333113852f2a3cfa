"""Scans of an engine: bounded, forgotten when idle, and a page for each request."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.errors import Overloaded
from boki_logbook.scan import handles, pages
from boki_logbook.scan.facts import LIVE, ScanRange
from boki_logbook.scan.handles import ScanHandles
from boki_logbook.scan.messages import VERSION, ScanRequest, decode_answer, encode_request
from boki_logbook.scan.pages import Captured, capture
from boki_logbook.scan.plan import PlanBuilder
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import apply, begin, no_metalog, plan_of, seqnums_of


def state() -> DecisionState:
    made = DecisionState()
    places = begin(made, 1)
    for at in range(20):
        apply(made, places, RunSpec(7, b"w" * 16, 1 + at, (RecordSpec((5,)),)))
    return made


def serving(of: DecisionState) -> ScanHandles:
    def take(asked: ScanRange, mode: str) -> Captured:
        return capture(of, None, asked, mode, no_metalog)

    return ScanHandles(take)


ASKED = ScanRange({}, {0: (1, 20)}, 7, (5,))
ONE, TWO = "one connection", "another"
BEGIN = memoryview(encode_request(ScanRequest(VERSION, 0, ASKED, LIVE)))


async def test_pages_one_by_one_are_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_ROWS", 3)
    served = serving(of := state())
    builder, requests = PlanBuilder(ASKED, LIVE), 1
    answer = decode_answer(served.answer(ONE, BEGIN))
    builder.take(answer.page)
    while not builder.whole:
        again = memoryview(encode_request(ScanRequest(VERSION, answer.handle)))
        builder.take(decode_answer(served.answer(ONE, again)).page)
        requests += 1
    assert seqnums_of(builder.finish()) == seqnums_of(plan_of(of, ASKED)) and requests > 5
    assert served.open == 0, "the last page ends it"


async def test_a_scan_that_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "IDLE_S", 0.0)
    served = serving(state())
    handle = decode_answer(served.answer(ONE, BEGIN)).handle
    while served.open:
        await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="plan again"):
        served.answer(ONE, memoryview(encode_request(ScanRequest(VERSION, handle))))


async def test_all_are_forgotten_when_it_is_closed() -> None:
    served = serving(state())
    served.answer(ONE, BEGIN)
    served.answer(TWO, BEGIN)
    with pytest.raises(Overloaded):
        served.answer("three", BEGIN)
    served.close()
    assert served.open == 0
    served.answer(ONE, BEGIN)
    served.close()


def next_page(handle: int, *, close: bool = False) -> memoryview:
    return memoryview(encode_request(ScanRequest(VERSION, handle, close=close)))


@pytest.mark.parametrize("close", [False, True])
async def test_a_scan_is_of_the_connection_that_began_it(monkeypatch: pytest.MonkeyPatch, close: bool) -> None:
    monkeypatch.setattr(pages, "PAGE_ROWS", 3)
    served = serving(state())
    handle = decode_answer(served.answer(ONE, BEGIN)).handle
    page = decode_answer(served.answer(ONE, next_page(handle))).page
    with pytest.raises(Overloaded, match="plan again"):
        served.answer(TWO, next_page(handle, close=close))
    assert served.open == 1 and decode_answer(served.answer(ONE, next_page(handle))).page not in (page, pages.Page())
    served.left(TWO)
    assert served.open == 1
    served.left(ONE)
    assert served.open == 0, "it ends with its connection"


async def test_a_connection_that_begins_another_scan_ends_the_one_before() -> None:
    served = serving(state())
    for _ in range(5):
        served.answer(ONE, BEGIN)
    served.answer(TWO, BEGIN)
    assert served.open == 2
    served.close()


async def test_a_state_that_cannot_be_read_ends_its_scan() -> None:
    def take(asked: ScanRange, mode: str) -> Captured:
        raise Overloaded("not now")

    served = ScanHandles(take)
    with pytest.raises(Overloaded, match="not now"):
        served.answer(ONE, BEGIN)
    assert served.open == 0
