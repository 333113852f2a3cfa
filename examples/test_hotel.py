"""Tests of the travel reservation: its rules, its workflows, crashes at every operation, the checks, and trials under kill -9.

    .venv/bin/python -m pytest examples/test_hotel.py -m "not processes"        # without the trials
    .venv/bin/python -m pytest examples/test_hotel.py -m "not nightly"          # with one of half a minute

Crash tests repeat a program on a cluster in memory, and kill it before and after each of its operations on the log, or lose the
answer; a second worker then has to finish. Each fault that the checks know is tried on an otherwise faultless state.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import Handle, Worker
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records.codec import Json, JsonObject
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from bokistore import BokiStore, StoreSettings
from examples.apps.application import Answer, Request, operation_of
from examples.apps.row_store import ObjectRowStore
from examples.apps.trial import trial
from examples.hotel import data_set
from examples.hotel.app import Hotel, SoldOut
from examples.hotel.application import HOTEL, MIX, request
from examples.hotel.checks import check
from examples.hotel.rules import distance_km, nearest, rate_of, recommended
from itests.support.cassandra import CassandraServer
from libs.tests.flow.conftest import Inline

SETTINGS = StoreSettings(checkpoints=False)
FEW: dict[str, JsonObject] = {
    "hotel:1": {"capacity": 1, "left": 1},
    "flight:1": {"capacity": 2, "left": 2},
    "flight:2": {"capacity": 1, "left": 0},
}


def data_of(book: BookPort) -> ObjectRowStore:
    return ObjectRowStore(BokiStore(Log(book), settings=SETTINGS))


# -- rules and data


def test_the_data_set_is_the_papers() -> None:
    rows = data_set.rows()
    kinds = Counter(name.partition(":")[0] for name in rows)
    assert kinds == {
        "geo": 1, "profile": 79, "rate": 28, "recommendation": 1, "user": 501, "hotel": 100, "flight": 100,
    }  # fmt: skip
    assert len(rows["geo:points"]["points"]) == 80  # type: ignore[arg-type]
    assert rows["user:Cornell_7"] == {"password": "7777777777"}


def test_what_is_near_is_within_ten_kilometres() -> None:
    assert distance_km((52.52, 13.405), (48.137, 11.575)) == pytest.approx(504, abs=2)
    points: list[Json] = [[str(number), 0.0, number / 100] for number in range(20)]
    assert nearest(points, (0.0, 0.031)) == ["3", "4", "2", "5", "1"]
    assert nearest(points, (0.0, 0.27)) == ["19"]
    assert nearest(points, (1.0, 1.0)) == []


def test_a_rate_covers_all_days_and_is_the_cheapest() -> None:
    plans: Any = {"plans": [{"from": "2015-04-09", "to": "2015-04-17", "rate": rate} for rate in (120, 100)]}
    assert rate_of(plans, "2015-04-09", "2015-04-17") == 100
    assert rate_of(plans, "2015-04-09", "2015-04-18") is None
    assert rate_of(None, "2015-04-09", "2015-04-10") is None


def test_the_best_by_distance_rate_and_price() -> None:
    hotels: list[Json] = [["1", 0.0, 0.0, 10.0, 5.0], ["2", 0.0, 1.0, 20.0, 5.0], ["3", 0.0, 2.0, 20.0, 9.0]]
    assert recommended(hotels, "dis", (0.0, 1.9)) == ["3"]
    assert recommended(hotels, "rate", (0.0, 0.0)) == ["2", "3"]
    assert recommended(hotels, "price", (0.0, 0.0)) == ["1", "2"]
    with pytest.raises(boki.InvalidArgument, match="dis, rate, price"):
        recommended(hotels, "colour", (0.0, 0.0))


def test_the_mix_is_the_papers() -> None:
    chance = random.Random(7)
    found = Counter(operation_of(MIX, chance) for _ in range(20_000))
    for operation, percent in MIX.items():
        assert abs(found[operation] / 20_000 - percent / 100) < 0.01, operation
    for operation in MIX:
        made = request(chance, operation, "x")
        assert (made.id, made.operation) == ("x", operation)


# -- workflows


async def ask(worker: Worker, hotel: Hotel, id: str, operation: str, *args: Json) -> Json:
    handle: Handle[Json] = await worker.start(hotel.operations[operation].call(*args), id=id)
    return await handle.result()


async def test_searches_recommendations_logins_and_trips() -> None:
    async with MemoryCluster() as cluster:
        data = data_of((await cluster.connect()).book("hotel"))
        await data.fill({**data_set.rows(), **FEW})
        await data.fill({"hotel:1": {"capacity": 9, "left": 9}})  # existing rows stay
        hotel = Hotel(data)
        async with Worker(hotel.app, data.log, bodies=Inline()) as worker:
            found: Any = await ask(worker, hotel, "s", "search", 37.786, -122.405, "2015-04-10", "2015-04-12")
            assert [one["name"] for one in found] == ["Hotel 1", "Hotel 6", "Hotel 2", "Hotel 3"], (
                "hotels with a rate, the cheapest first"
            )
            assert await ask(worker, hotel, "f", "search", 0.0, 0.0, "2015-04-10", "2015-04-12") == []
            best: Any = await ask(worker, hotel, "r", "recommend", "price", 37.8, -122.4)
            assert [one["name"] for one in best][:2] == ["Hotel 10", "Hotel 15"]
            assert await ask(worker, hotel, "l", "login", "Cornell_3", "3333333333") is True
            assert await ask(worker, hotel, "m", "login", "Cornell_3", "wrong") is False
            assert await ask(worker, hotel, "t1", "reserve", "Cornell_1", 1, 1) == "t1"
            assert await ask(worker, hotel, "t1", "reserve", "Cornell_1", 1, 1) == "t1", "requested twice, booked once"
            for id, room, seat in (("t2", 1, 1), ("t3", 2, 2)):
                with pytest.raises(SoldOut):
                    await ask(worker, hotel, id, "reserve", "Cornell_1", room, seat)
        rows = await data.all()
        assert (rows["hotel:1"]["left"], rows["flight:1"]["left"], rows["hotel:2"]["left"]) == (0, 1, 10)
        assert rows["trip:t1"] == {"user": "Cornell_1", "hotel": 1, "flight": 1}
        assert rows["order:t1"] == {"user": "Cornell_1", "trip": "t1"}


async def test_records_by_operation() -> None:
    async with MemoryCluster() as cluster:
        data = data_of((await cluster.connect()).book("hotel"))
        await data.fill(data_set.rows())
        hotel = Hotel(data)
        async with Worker(hotel.app, data.log, bodies=Inline()) as worker:

            async def appends(id: str, operation: str, *args: Json) -> int:
                before = data.log.appends
                await ask(worker, hotel, id, operation, *args)
                return data.log.appends - before

            assert await appends("s", "search", 37.786, -122.405, "2015-04-10", "2015-04-12") == 2, "start, step"
            assert await appends("r", "recommend", "price", 37.8, -122.4) == 2
            assert await appends("l", "login", "Cornell_3", "3333333333") == 2
            assert await appends("t", "reserve", "Cornell_1", 1, 1) == 6, (
                "start, trip, start of the order, order, end of the order, end"
            )


# -- crashes at every operation


async def reserve(book: BookPort) -> None:
    data = data_of(book)
    hotel = Hotel(data)

    async def work() -> None:
        async with Worker(hotel.app, data.log, name="w", bodies=Inline()) as worker:
            while True:
                try:
                    handles = [
                        await worker.start(hotel.operations["reserve"].call("ann", 1, flight), id=f"t{flight}")
                        for flight in (1, 2)
                    ]
                    break
                except boki.OutcomeUnknown:
                    pass
            assert await handles[0].result() == "t1"
            with pytest.raises(SoldOut):
                await handles[1].result()

    await while_alive(book, work())


async def few(book: boki.Book) -> None:
    await data_of(book).fill(FEW)


async def whole(book: boki.Book) -> None:
    rows = await data_of(book).all()
    answers = [
        Answer(Request("t1", "reserve", ("ann", 1, 1)), "t1", "", 0, 1),
        Answer(Request("t2", "reserve", ("ann", 1, 2)), None, "SoldOut", 0, 1),
    ]
    sold_out: JsonObject = {"capacity": 0, "left": 0}  # as it was at the beginning
    assert check(answers, {**rows, "flight:2": sold_out}) == []


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_no_trip_is_half_booked_wherever_it_is_killed(kinds: tuple[FaultKind, ...]) -> None:
    assert (await crash_everywhere(reserve, reserve, whole, kinds=kinds, before=few)).runs > 8


async def test_no_trip_is_booked_twice_wherever_a_second_worker_starts() -> None:
    assert (await start_anywhere(reserve, reserve, whole, before=few)).runs > 8


# -- checks


def answered_and_stored() -> tuple[list[Answer], dict[str, Any]]:
    rows: dict[str, Any] = {
        "hotel:1": {"capacity": 3, "left": 1},
        "flight:1": {"capacity": 2, "left": 0},
        "trip:a": {"user": "ann", "hotel": 1, "flight": 1},
        "trip:b": {"user": "bob", "hotel": 1, "flight": 1},
        "order:a": {"user": "ann", "trip": "a"},
        "order:b": {"user": "bob", "trip": "b"},
    }
    answers = [
        Answer(Request("a", "reserve", ("ann", 1, 1)), "a", "", 0.1, 1),
        Answer(Request("b", "reserve", ("bob", 1, 1)), "b", "", 0.1, 2),
        Answer(Request("c", "reserve", ("carl", 1, 1)), None, "SoldOut", 0.1, 1),
        Answer(Request("d", "login", ("ann", "x")), True, "", 0.1, 1),
    ]
    return answers, rows


def test_a_faultless_state_has_no_faults() -> None:
    assert check(*answered_and_stored()) == []


@pytest.mark.parametrize(
    ("change", "fault_text"),
    [
        (lambda a, r: r.pop("trip:a"), "trip a was acknowledged, but is not booked"),
        (lambda a, r: r.pop("trip:a"), "hotel:1: 2 booked, but 1 trips have it"),
        (lambda a, r: r["flight:1"].update(left=1), "flight:1: 1 booked, but 2 trips have it"),
        (lambda a, r: r["flight:1"].update(left=-1), "-1 left"),
        (lambda a, r: r.update({"trip:c": r["trip:a"]}), "trip c was refused, but is booked"),
        (lambda a, r: r.update({"trip:z": r["trip:a"]}), "trip z was never requested"),
        (lambda a, r: r["trip:a"].update(user="eve"), "trip a differs from the request"),
        (lambda a, r: r.pop("order:a"), "trip a has no order"),
        (lambda a, r: r.update({"order:q": r["order:a"]}), "order q has no trip"),
        (lambda a, r: a.append(a[3]._replace(value=False)), "ann could not log in"),
        (lambda a, r: a.append(a[0]._replace(refused="KeyError")), "trip a was refused: KeyError"),
        (lambda a, r: a.append(a[3]._replace(refused="KeyError")), "login d was refused"),
    ],
)  # fmt: skip
def test_each_fault_is_found(change: Callable[[Any, Any], object], fault_text: str) -> None:
    answers, rows = answered_and_stored()
    rows = deepcopy(rows)
    change(answers, rows)
    found = check(answers, rows)
    assert any(fault_text in fault for fault in found), found


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(1_200)
async def test_ten_minutes_of_kills(tmp_path: Path) -> None:
    found = await trial(HOTEL, tmp_path, seconds=600, seed=11)
    assert found.faults == []
    assert found.killed.total() > 20


@pytest.mark.processes
@pytest.mark.cassandra
@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(600)
async def test_a_trial_with_the_rows_in_cassandra_which_is_killed_as_well(tmp_path: Path) -> None:
    server = CassandraServer.start(tmp_path / "cassandra")
    try:
        found = await trial(HOTEL, tmp_path, seconds=60, seed=5, tables=server)
    finally:
        server.kill()
    assert found.faults == []
    assert found.killed["cassandra"] >= 1


@pytest.mark.processes
@pytest.mark.waits
@pytest.mark.timeout(900)
async def test_half_a_minute_of_kills(tmp_path: Path) -> None:
    """Clients pause between requests, so the test mostly waits while other tests run."""
    found = await trial(HOTEL, tmp_path, seconds=30, least=75, pause_s=0.5, seed=3)
    assert found.faults == []
    assert found.killed.total() >= 1  # on a busy machine a restart takes long
    asked = Counter(answer.request.operation for answer in found.answers)
    assert all(asked[operation] for operation in HOTEL.mix), asked
    assert " rows: all hold<" in (tmp_path / "page.html").read_text()
