"""The contract suite of database ports, run on memory and on a real Cassandra."""

from __future__ import annotations

import pytest

from bokiflow.tables import Schema, TablePort, TableRefused
from bokiflow.tables.schema import ABSENT, VERSION, RowKey
from libs.tests.flow.tables.conftest import HOTEL

SEVEN = RowKey("hotel", "seven")
CELLS = {
    "left_over": 2**62,
    "name": "Zum Löwen",
    "price": 0.1,
    "open": False,
    "more": {"a": [1, None, "x"]},
    VERSION: 5,
    ABSENT: "",
}


async def test_every_kind_comes_back_with_its_time_stamp(port: TablePort) -> None:
    await port.ensure(HOTEL)
    assert await port.read(HOTEL, "seven") == {}
    await port.write(HOTEL, SEVEN, CELLS, 5)
    found = await port.read(HOTEL, "seven")
    assert {name: cell.value for name, cell in found.items()} == CELLS
    assert {cell.written for cell in found.values()} == {5}
    assert await port.read(HOTEL, "eight") == {}


async def test_the_higher_time_stamp_stays_however_writes_arrive(port: TablePort) -> None:
    await port.ensure(HOTEL)
    await port.write(HOTEL, SEVEN, {VERSION: 9, ABSENT: "", "left_over": 9}, 9)
    for _ in range(2):
        await port.write(HOTEL, SEVEN, {VERSION: 4, ABSENT: "name", "left_over": 4, "name": "old"}, 4)
    found = await port.read(HOTEL, "seven")
    assert {name: tuple(cell) for name, cell in found.items()} == {
        VERSION: (9, 9),
        ABSENT: ("", 9),
        "left_over": (9, 9),
        "name": ("old", 4),
    }


async def test_time_stamps_are_seqnums_of_63_bits(port: TablePort) -> None:
    await port.ensure(HOTEL)
    last = 2**63 - 2
    await port.write(HOTEL, SEVEN, {VERSION: last, ABSENT: ""}, last)
    assert (await port.read(HOTEL, "seven"))[VERSION] == (last, last)


async def test_a_table_is_claimed_once(port: TablePort) -> None:
    await port.ensure(HOTEL)
    assert await port.claim("hotel", "mine") == "mine"
    assert await port.claim("hotel", "yours") == "mine"
    assert await port.claim("hotel", "mine") == "mine"


async def test_columns_are_added_and_never_changed(port: TablePort) -> None:
    small = Schema("hotel", {"left_over": "int"})
    await port.ensure(small)
    await port.write(small, SEVEN, {"left_over": 1, VERSION: 1, ABSENT: ""}, 1)
    await port.ensure(HOTEL)
    found = await port.read(HOTEL, "seven")
    assert found["left_over"] == (1, 1)
    assert "name" not in found
    with pytest.raises(TableRefused, match="left_over"):
        await port.ensure(Schema("hotel", {"left_over": "text"}))


async def test_a_table_that_is_not_there_is_refused(port: TablePort) -> None:
    other = Schema("other", {"a": "int"})
    with pytest.raises(TableRefused, match="other"):
        await port.read(other, "x")
    with pytest.raises(TableRefused, match="other"):
        await port.write(other, RowKey("other", "x"), {"a": 1}, 1)


async def test_keys_are_all_there_are(port: TablePort) -> None:
    await port.ensure(HOTEL)
    for number in range(30):
        await port.write(HOTEL, RowKey("hotel", f"h{number}"), {VERSION: 1, ABSENT: ""}, 1)
    assert sorted([key async for key in port.keys(HOTEL)]) == sorted(f"h{number}" for number in range(30))
