"""Operations of simulated clients as calls of a history."""

from __future__ import annotations

from boki_sim.checkers.check import check
from boki_sim.checkers.history import Operation as Call
from boki_sim.verdicts.as_history import as_history
from boki_sim.verdicts.verdict_on_history import Entry
from boki_sim.work.operations import (
    AT,
    CONFLICT,
    FAILED,
    LINEARIZABLE,
    OK,
    PENDING,
    TOKEN,
    TRIM,
    UNKNOWN,
    WHY,
    Operation,
)

LOG = {"b": [Entry(10, b"one...", ("a",)), Entry(20, b"two", ())]}


def calls(*operations: Operation) -> list[Call]:
    return list(as_history(operations, LOG, reader="r", start=90.0, end=99.0))


def appended(payload: bytes, outcome: str, seqnum: int | None = None, at: float = 1.0) -> Operation:
    return Operation("c", "append", "b", at, ("a",), payload, outcome=outcome, end=at + 1, seqnum=seqnum)


def test_appends_keep_their_outcome() -> None:
    lost = appended(b"x", CONFLICT)
    lost.expect, lost.actual = {"a": None}, {"a": 10}
    told = calls(
        appended(b"one...", OK, 10), lost, appended(b"y", FAILED), appended(b"z", UNKNOWN), appended(b"w", PENDING)
    )
    assert [call.outcome for call in told[:-1]] == ["ok", "conflict", "never", "unknown", "unknown"]
    assert (told[0].data, told[0].seqnum, told[0].tags) == ("one", 10, ("a",))
    assert (told[1].expect, told[1].actual) == ({"a": None}, {"a": 10})
    assert (told[3].end, told[4].end) == (2.0, None)


def test_reads_become_the_range_that_they_covered() -> None:
    def read(kind: str, bound: int | None, seqnum: int | None) -> Call:
        payload = b"" if seqnum is None else b"one..."
        return calls(Operation("c", kind, "b", 1.0, ("a",), payload, bound, outcome=OK, end=2.0, seqnum=seqnum))[0]

    found = read("next", 5, 10)
    assert (found.low, found.high, found.rows, found.tag) == (5, 11, ((10, "one"),), "a")
    assert (read("next", 5, None).low, read("next", 5, None).high) == (5, None)
    assert (read("prev", 15, 10).low, read("prev", 15, 10).high) == (10, 16)
    assert (read("prev", 15, None).low, read("prev", 15, None).high) == (0, 16)
    assert (read("tail", None, 10).low, read("tail", None, 10).high) == (10, None)
    failed = Operation("c", "next", "b", 1.0, outcome=UNKNOWN)
    assert [call.client for call in calls(failed)] == ["r"]


def test_the_last_reading_shows_what_is_lost() -> None:
    good = (appended(b"one...", OK, 10), appended(b"two", OK, 20, at=5))
    good[1].tags = ()
    assert check(calls(*good)) == []
    assert {finding.anomaly for finding in check(calls(*good, appended(b"three", OK, 30, at=8)))} == {"lost"}


def test_trims_and_reads_below_them_are_calls_of_their_own() -> None:
    lowered = Operation("c", TRIM, "b", 3.0, ("a",), bound=11, outcome=OK, end=4.0)
    perhaps = Operation("c", TRIM, "b", 3.0, (), bound=11)
    told = Operation("c", "next", "b", 5.0, ("a",), outcome=OK, end=6.0, consistency=LINEARIZABLE, mark=11)
    one, other, read, _ = calls(lowered, perhaps, told)
    assert (one.kind, one.tag, one.before, one.outcome, one.end) == ("trim", "a", 11, "ok", 4.0)
    assert (other.tag, other.outcome, other.end) == ("", "unknown", None)
    assert (read.low, read.high, read.trimmed, read.consistency, read.rows) == (0, 11, 11, "linearizable", ())
    good = (appended(b"one...", OK, 10), appended(b"two", OK, 20, at=2))
    good[1].tags = ()
    assert check(calls(*good, lowered, told)) == []
    assert [finding.anomaly for finding in check(calls(*good, told))] == ["wrong trim"]


def test_point_reads_tokens_and_what_histories_do_not_know() -> None:
    place = Operation("c", AT, "b", 1.0, bound=10, outcome=OK, end=2.0, seqnum=10, payload=b"one...")
    asked = Operation("c", WHY, "b", 3.0, outcome=OK, end=3.5)
    handed = Operation("child", TOKEN, "", 4.0, outcome=OK, end=4.0, of="c")
    forgets = Operation("c", TRIM, "b", 5.0, ("a",), bound=3, outcome=OK, end=6.0, forget=True)
    one, token, trimmed, _ = calls(place, asked, handed, forgets)
    assert (one.low, one.high, one.rows) == (10, 11, ((10, "one"),))
    assert (token.kind, token.client, token.of, token.book) == ("token", "child", "c", "")
    assert trimmed.forget
