"""Histories made by hand: the good ones pass, each anomaly is named."""

from __future__ import annotations

import pytest

from boki_sim.verdict_on_history import Entry, judge
from boki_sim.workload import CONFLICT, FAILED, OK, UNKNOWN, Operation

LOG = [Entry(10, b"one", ("a",)), Entry(20, b"two", ()), Entry(30, b"three", ("a", "b"))]


def append(payload: bytes, seqnum: int | None, at: float, **facts: object) -> Operation:
    tags = next((entry.tags for entry in LOG if entry.payload == payload), ())
    made = Operation("c", "append", "b", at, tags, payload, outcome=OK, end=at + 0.5, seqnum=seqnum)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def read(kind: str, tag: str, bound: int | None, seqnum: int | None, at: float, payload: bytes = b"") -> Operation:
    found = next((entry.payload for entry in LOG if entry.seqnum == seqnum), payload)
    tags = (tag,) if tag else ()
    return Operation("c", kind, "b", at, tags, found, bound, outcome=OK, end=at + 0.5, seqnum=seqnum)


GOOD = [append(b"one", 10, 1), append(b"two", 20, 2), append(b"three", 30, 3)]


def verdict(*operations: Operation, log: list[Entry] | None = None) -> list[str]:
    return list(judge(operations, {"b": LOG if log is None else log}))


def test_a_good_history_passes() -> None:
    assert (
        verdict(
            *GOOD,
            append(b"lost", None, 4, outcome=CONFLICT),
            append(b"never sent", None, 4, outcome=FAILED),
            append(b"perhaps", None, 4, outcome=UNKNOWN),
            read("next", "", None, 10, 5),
            read("next", "a", 11, 30, 6),
            read("next", "b", 31, None, 7),
            read("prev", "", 29, 20, 8),
            read("prev", "b", 29, None, 8),
            read("tail", "a", None, 30, 9),
            read("tail", "c", None, None, 9),
        )
        == []
    )


@pytest.mark.parametrize(
    ("operations", "log", "said"),
    [
        (GOOD, LOG[:2], "lost: three was acknowledged at 30, and is at None"),
        (GOOD, [*LOG, Entry(40, b"one", ("a",))], "duplicate: one is at 10 and at 40"),
        (GOOD[:2], LOG, "phantom: nobody appended three at 30"),
        (GOOD, [LOG[0], LOG[1], Entry(30, b"three", ("a",))], "three has tags ('a',)"),
        ([*GOOD[:2], append(b"three", None, 3, outcome=CONFLICT)], LOG, "three was refused"),
        ([*GOOD[:2], append(b"three", None, 3, outcome=FAILED)], LOG, "three was refused"),
        ([append(b"one", 10, 7), *GOOD[1:]], LOG, "reordered: one began at 7"),
        ([*GOOD[:2], append(b"three", 30, 3, expect={"a": None})], LOG, "expected a to end at None, but it had 10"),
        ([*GOOD, read("next", "a", 0, 30, 5)], LOG, "got 30, passing by 10"),
        ([*GOOD, read("next", "", 15, None, 5)], LOG, "got None, passing by 20"),
        ([*GOOD, read("next", "", 15, 10, 5)], LOG, "got 10"),
        ([*GOOD, read("tail", "a", None, 10, 5)], LOG, "got 10, its session knew of 30"),
        ([*GOOD, read("prev", "", 25, 10, 5)], LOG, "passing by 20"),
        ([*GOOD, read("prev", "", 15, 20, 5)], LOG, "from 15 at 5.0000 s and got 20"),
        ([*GOOD, read("next", "", 40, 41, 5, b"ghost")], LOG, "got 41 ghost, which is not in the log"),
        (GOOD, [LOG[1], LOG[0], LOG[2]], "seqnum 10 comes after 20"),
    ],
)  # fmt: skip
def test_each_anomaly_is_named(operations: list[Operation], log: list[Entry], said: str) -> None:
    found = verdict(*operations, log=log)
    assert any(said in text for text in found), found


def test_a_session_knows_only_what_it_was_told_before_the_read_began() -> None:
    late = append(b"three", 30, 3)
    early = read("tail", "", None, 20, 3.2)
    assert verdict(*GOOD[:2], late, early) == []
    other = read("tail", "", None, 20, 5)
    other.client = "another"
    assert verdict(*GOOD[:2], late, other) == []
