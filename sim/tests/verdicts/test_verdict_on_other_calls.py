"""What is answered beside records, by hand: times, places of times, aux data, reasons to wait."""

from __future__ import annotations

import pytest

from boki_sim.checkers.history import Operation
from boki_sim.verdicts.verdict_on_other_calls import judge_other_calls
from boki_sim.work.operations import AUX, KEPT, OK, READ, SEEK, WHY

TIMES = {10: 1_000, 20: 2_000, 25: 0, 30: 2_000, 40: 4_000}
"""Nobody knows the time of 25."""
LIVE = {10, 30, 40}


def said(*operations: Operation, times: dict[int, int] = TIMES, floor: int = 40) -> list[str]:
    return list(judge_other_calls(operations, times, LIVE, lambda one: floor))


def sought(time_ms: int, place: int) -> Operation:
    return Operation("c", SEEK, "b", 5.0, low=place, time_ms=time_ms, outcome=OK, end=6.0)


def shown(seqnum: int, time_ms: int, aux: bytes = b"") -> Operation:
    return Operation("c", READ, "b", 5.0, 6.0, OK, rows=((seqnum, "x"),), time_ms=time_ms, aux=aux)


def left(seqnum: int, aux: bytes, start: float = 4.0, answer: str = KEPT) -> Operation:
    return Operation("d", AUX, "b", start, low=seqnum, outcome=OK, end=start + 0.5, aux=aux, answer=answer)


def waits(word: str) -> Operation:
    return Operation("c", WHY, "b", 5.0, outcome=OK, end=6.0, answer=word)


def test_what_is_right_passes() -> None:
    assert said(sought(0, 10), sought(1_001, 20), sought(2_000, 20), sought(3_000, 35), sought(9_000, 41)) == []
    assert said(sought(9_000, 21), floor=20) == [], "what came later need not be known"
    assert said(sought(4_000, 31), floor=40) == [], "nothing is there before 40"
    assert said(sought(2_500, 15), floor=20) == [], "20 is dead"
    assert (
        said(shown(20, 2_000), left(20, b"x"), shown(20, 2_000, b"x"), left(20, b"y", 5.5), shown(20, 2_000, b"y"))
        == []
    )
    assert said(waits("nothing"), waits("bookies"), left(7, b"x", answer="")) == []


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (sought(1_500, 30), "passing by 20 of 2000 ms"),
        (sought(2_500, 30), "but 30, which was known, is of 2000 ms"),
        (shown(20, 2_001), "with time 2001 ms, others with 2000"),
        (shown(20, 2_000, b"z"), "aux data that nobody left there: b'z'"),
        (shown(30, 2_000, b"x"), "aux data that nobody left there: b'x'"),
        (left(11, b"w"), "beside 11, which is no record"),
        (waits("the moon"), "and got: the moon"),
    ],
)
def test_what_is_wrong_is_named(operation: Operation, text: str) -> None:
    found = said(left(20, b"x"), operation)
    assert len(found) == 1
    assert text in found[0]


def test_aux_data_is_not_there_before_it_was_left() -> None:
    assert said(shown(20, 2_000, b"x"), left(20, b"x", 6.5))


def test_time_does_not_go_back_along_a_book() -> None:
    assert any("the record at 30" in text for text in said(times={10: 1_000, 20: 3_000, 30: 2_000}))
