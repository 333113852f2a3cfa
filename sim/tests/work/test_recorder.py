"""What a simulated client writes down of a call is what it says to the checkers."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

import boki
from boki_common.errors import Conflict, Trimmed
from boki_sim.checkers.check import check
from boki_sim.checkers.history import Operation, Read
from boki_sim.work.call_mix import draw_call_mix
from boki_sim.work.operations import AT, AUX, NEXT, OK, PREV, READ, SEEK, TAIL, WHY, History
from boki_sim.work.recorder import Recorder
from boki_sim.work.workload_reads import read_one


class OneRecord:
    """A book of which every read finds one record, or nothing, or fails."""

    name = "b"
    position = 40

    def __init__(self, record: boki.Record | None = None, error: Exception | None = None) -> None:
        self._record, self._error = record, error

    async def read_next(self, *_asked: Any, **_options: Any) -> boki.Record | None:
        if self._error is not None:
            raise self._error
        return self._record

    read_prev = read_at = check_tail = read_next


def recorder() -> Recorder:
    loop: Any = SimpleNamespace(now=1.0)
    return Recorder(loop, "c", random.Random(1), draw_call_mix(random.Random(1)), History())


async def read(how: Read, bound: int | None, **found: Any) -> Operation:
    book: Any = OneRecord(**found)
    return await read_one(recorder(), book, how, "a", bound)


@pytest.mark.parametrize(
    ("how", "bound", "covered", "without"),
    [
        (NEXT, 5, (5, 11), (5, None)),
        (PREV, 15, (10, 16), (0, 16)),
        (TAIL, None, (10, None), (0, None)),
        (AT, 10, (10, 11), (10, 11)),
    ],
)
async def test_reads_are_ranges_from_their_bound_to_what_they_found(
    how: Read, bound: int | None, covered: tuple[int, int | None], without: tuple[int, int | None]
) -> None:
    found = await read(how, bound, record=boki.Record(10, ("a",), b"one..", b"x", "b", 7))
    assert (found.low, found.high, found.rows, found.tag) == (*covered, ((10, "one+2"),), "a")
    assert (found.position, found.time_ms, found.aux, found.place) == (40, 7, b"x", 10)
    nothing = await read(how, bound)
    assert (nothing.low, nothing.high, nothing.rows, nothing.outcome) == (*without, (), OK)


async def test_who_is_answered_that_the_beginning_is_trimmed_saw_nothing_above_it() -> None:
    trimmed = await read(NEXT, 5, error=Trimmed("trimmed", mark=11))
    assert (trimmed.low, trimmed.high, trimmed.trimmed, trimmed.outcome) == (5, 11, 11, OK)


def test_conflicts_name_what_they_met() -> None:
    kept, book = recorder(), OneRecord()
    lost = kept.begin(book, "append", data="x", expect={"a": None})  # type: ignore[arg-type]  # a name is enough
    kept.refused(lost, Conflict("newer", actual={"a": 10}))
    assert (lost.outcome, lost.actual, lost.end) == ("conflict", {"a": 10}, 1.0)


def test_calls_that_put_nothing_in_order_are_no_matter_of_the_checkers() -> None:
    others = [Operation("c", kind, "b", 1.0, 2.0, OK, data="x") for kind in (SEEK, AUX, WHY)]
    whole = Operation("c", READ, "b", 3.0, 4.0, OK, consistency="linearizable")
    assert check([*others, whole]) == []
