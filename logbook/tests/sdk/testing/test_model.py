"""The model's verdicts: dedupe, then condition; everything takes its place."""

from __future__ import annotations

from boki.testing._model import Append, Model, Outcome

A, B = b"a" * 16, b"b" * 16


def append(
    number: int, *, writer: bytes = A, low: int = 1, expect: tuple[tuple[int, int], ...] = (), **more: bool
) -> Append:
    return Append(1, writer, number, low, (7,), b"x", expect, **more)


def test_numbers_are_decided_once_and_in_order() -> None:
    model = Model()
    first = model.append(append(1), 5)
    assert first.outcome is Outcome.COMMITTED
    assert model.append(append(3), 5) == model.append(append(4), 5)
    assert model.append(append(3), 5).outcome is Outcome.GAP
    assert model.append(append(3), 5).seqnum == 1
    assert model.append(append(1), 6) == first
    second = model.append(append(2), 4)
    assert second.outcome is Outcome.COMMITTED
    records = model.upwards(1, 7, 0, 2**63, 10)
    assert [record.seqnum for record in records] == [first.seqnum, second.seqnum]
    assert [record.time_ms for record in records] == [5, 6]
    assert model.end == 7, "duplicates and gaps take places too"


def test_a_losing_condition_stays_lost() -> None:
    model = Model()
    model.append(append(1, writer=B), 0)
    lost = model.append(append(1, expect=((7, 0),)), 0)
    assert lost.outcome is Outcome.CONFLICT
    assert model.append(append(1, expect=((7, 0),)), 0) == lost
    assert model.append(append(2), 0).outcome is Outcome.COMMITTED


def test_a_void_decides_its_number() -> None:
    model = Model()
    assert model.append(append(1, void=True), 0).outcome is Outcome.NEVER
    assert model.append(append(1), 0).outcome is Outcome.NEVER
    assert model.upwards(1, 0, 0, 2**63, 10) == []


def test_answers_below_low_go() -> None:
    model = Model()
    for number in (1, 2, 3):
        model.append(append(number, low=number), 0)
    assert model.append(append(1), 0).outcome is Outcome.FORGOTTEN
    assert model.append(append(3), 0).outcome is Outcome.COMMITTED
    model.forget_writers()
    assert model.append(append(4), 0).outcome is Outcome.GAP


def test_ranges() -> None:
    model = Model()
    seqnums = [model.append(append(number), 0).seqnum for number in range(1, 6)]
    upwards = model.upwards(1, 0, seqnums[1], seqnums[4], 2)
    assert [record.seqnum for record in upwards] == seqnums[1:3]
    downwards = model.downwards(1, 0, seqnums[3], seqnums[1], 10)
    assert [record.seqnum for record in downwards] == [seqnums[3], seqnums[2], seqnums[1]]
    assert model.downwards(1, 0, seqnums[3], 0, 1)[0].seqnum == seqnums[3]
    assert model.downwards(2, 0, seqnums[3], 0, 1) == model.upwards(1, 8, 0, 2**63, 1) == []
    assert model.newest(1, 7) == seqnums[4]
    assert model.newest(1, 8) == 0
