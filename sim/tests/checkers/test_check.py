"""Each anomaly by hand, at least once; good histories; and thousands of small random ones against brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_sim.checkers.check import check
from boki_sim.checkers.history import Operation


def append(
    client: str, start: float, end: float | None, data: str, seqnum: int | None = None, **more: object
) -> Operation:
    outcome = more.pop("outcome", "ok" if seqnum is not None and end is not None else "unknown")
    fields = {
        "client": client,
        "kind": "append",
        "book": "b",
        "start": start,
        "end": end,
        "outcome": outcome,
        "data": data,
    }
    return msgspec.convert({**fields, "seqnum": seqnum, **more}, Operation)


def read(client: str, start: float, end: float, rows: Sequence[tuple[int, str]], **more: object) -> Operation:
    fields = {"client": client, "kind": "read", "book": "b", "start": start, "end": end, "outcome": "ok", "rows": rows}
    return msgspec.convert({"consistency": "linearizable", **fields, **more}, Operation)


def trim(start: float, end: float, before: int, tag: str = "") -> Operation:
    fields = {"client": "t", "kind": "trim", "book": "b", "start": start, "end": end, "outcome": "ok", "before": before}
    return msgspec.convert({**fields, "tag": tag}, Operation)


def token(client: str, of: str, at: float) -> Operation:
    return Operation(client, "token", "", at, at, "ok", of=of)


def forgets(before: int) -> Operation:
    return msgspec.structs.replace(trim(4, 5, before, "x"), forget=True)


A = append("c1", 0, 1, "a", 10, tags=["x"])
B = append("c2", 2, 3, "b", 20, tags=["x", "y"])
SEEN_A, SEEN_B = (10, "a"), (20, "b")


GOOD = {
    "everything is seen": [A, B, read("c3", 4, 5, [SEEN_A, SEEN_B])],
    "what runs beside a read may be missing": [A, B, read("c3", 1.5, 2.5, [SEEN_A])],
    "an append with an unknown outcome may be there": [A, append("c2", 2, 3, "b"), read("c3", 4, 5, [SEEN_A, SEEN_B])],
    "or not": [A, append("c2", 2, 3, "b"), read("c3", 4, 5, [SEEN_A])],
    "or come later than its caller gave up": [
        append("c2", 0, 1, "b"),
        read("c3", 2, 3, []),
        msgspec.structs.replace(A, start=4, end=5),
        read("c3", 6, 7, [SEEN_A, SEEN_B]),
    ],
    "another session may be behind": [A, B, read("c3", 4, 5, [SEEN_A], consistency="session")],
    "a read of another tag": [A, B, read("c3", 4, 5, [SEEN_B], tag="y")],
    "nothing below what was forgotten, by a trim of another stream": [
        A,
        forgets(15),
        read("c3", 6, 7, [], tag="z", trimmed=10),
    ],
    "a range": [A, B, read("c3", 4, 5, [SEEN_A], low=5, high=15)],
    "a conflict with what was newer": [
        A,
        append("c2", 2, 3, "z", outcome="conflict", expect={"x": None}, actual={"x": 10}),
    ],
    "a conflict that is certain, from an engine behind": [
        A,
        B,
        append("c3", 4, 5, "z", outcome="conflict", expect={"x": 5}, actual={"x": 10}),
    ],
    "a condition that holds": [A, msgspec.structs.replace(B, expect={"x": 10})],
    "trimmed records are not seen": [A, B, trim(4, 5, 15), read("c3", 6, 7, [SEEN_B], trimmed=15)],
    "a trim of one stream is reported, while one of all that began before it goes on": [
        A,
        B,
        trim(3.5, 9, 25),
        trim(4, 5, 15, "x"),
        read("c3", 6, 7, [], tag="x", high=15, trimmed=15),
        read("c3", 7.5, 8, [SEEN_B]),
    ],
    "a trim is reported that reached as far as there was anything, before one to that very place": [
        A,
        trim(2, 3, 30),
        read("c3", 4, 5, [], high=11, trimmed=11),
        trim(6, 7, 11),
        B,
    ],
    "trimmed in one stream, seen in another": [A, B, trim(4, 5, 30, "y"), read("c3", 6, 7, [SEEN_A, SEEN_B], tag="x")],
    "trimmed in all of its streams": [A, B, trim(4, 5, 15, "x"), read("c3", 6, 7, [SEEN_B])],
    "a trim without an answer may take effect later": [
        msgspec.structs.replace(trim(0, 1, 15), outcome="unknown"),
        msgspec.structs.replace(A, start=2, end=3),
        read("c3", 4, 5, []),
    ],
    "a conflict with what was trimmed before anybody saw it": [
        append("c2", 0, 1, "u", tags=["x"]),
        append("c3", 2, 3, "z", outcome="conflict", expect={"x": None}, actual={"x": 7}),
        trim(4, 5, 8),
        msgspec.structs.replace(A, start=6, end=7),
        read("c4", 8, 9, [SEEN_A]),
    ],
    "what a session took over is seen": [A, token("c2", "c1", 1.5), read("c2", 2, 3, [SEEN_A], consistency="session")],
    "what came after a token may be missing": [
        append("c1", 0, 3, "a", 10),
        token("c2", "c1", 2),
        read("c2", 4, 5, [], consistency="session"),
        read("c3", 6, 7, [SEEN_A]),
    ],
    "a stream that was forgotten is as if it had never been": [
        A,
        forgets(15),
        append("c2", 6, 7, "b", 20, tags=["x"], expect={"x": None}),
    ],
    "an append whose caller gave up is decided after its stream was forgotten": [
        append("c2", 2, 3, "b", tags=["x"], expect={"x": None}),
        A,
        forgets(15),
        read("c3", 6, 7, [SEEN_B]),
    ],
    "a forgotten stream has nothing newer than what is expected, and refuses it": [
        A,
        forgets(15),
        append("c3", 6, 7, "z", outcome="conflict", expect={"x": 10}, actual={"x": None}),
        append("c2", 8, 9, "b", 20, tags=["x"]),
    ],
    "nobody knows what was newest of a stream, below what its book has forgotten of others": [
        A,
        forgets(15),
        append("c3", 6, 7, "z", outcome="conflict", expect={"y": 12}, actual={"y": None}),
        append("c2", 8, 9, "b", 20, tags=["y"]),
    ],
    "a trim beside a read": [A, B, trim(4, 6, 15), read("c3", 5, 7, [SEEN_A, SEEN_B])],
}

BAD = {
    "lost": [A, B, read("c3", 4, 5, [SEEN_A])],
    "lost, one of its streams holds it still": [A, B, trim(4, 5, 30, "y"), read("c3", 6, 7, [SEEN_A])],
    "lost, by tag": [A, B, read("c3", 4, 5, [], tag="y")],
    "stale": [A, B, read("c3", 4, 5, [SEEN_A]), read("c3", 6, 7, [SEEN_A, SEEN_B])],
    "stale, own append": [A, read("c1", 2, 3, [], consistency="session"), read("c3", 6, 7, [SEEN_A])],
    "duplicated": [A, read("c3", 4, 5, [SEEN_A, (20, "a")])],
    "reordered, by real time": [msgspec.structs.replace(A, seqnum=30), B],
    "reordered, by readers": [A, B, read("c3", 4, 5, [(10, "b")])],
    "phantom": [A, read("c3", 4, 5, [SEEN_A, (20, "q")])],
    "phantom, refused": [A, append("c2", 2, 3, "b", outcome="never"), read("c3", 4, 5, [SEEN_A, SEEN_B])],
    "phantom, before its append": [A, read("c3", 1.5, 1.6, [SEEN_A, SEEN_B], consistency="session"), B],
    "non-monotonic": [
        A,
        B,
        read("c3", 4, 5, [SEEN_A, SEEN_B], consistency="session"),
        read("c3", 6, 7, [SEEN_A], consistency="session"),
        read("c4", 8, 9, [SEEN_A, SEEN_B]),
    ],
    "wrong verdict, let through": [A, msgspec.structs.replace(B, expect={"x": None})],
    "wrong verdict, refused": [A, append("c2", 2, 3, "z", outcome="conflict", expect={"x": 10})],
    "wrong verdict, what it lost to was not below any trim": [
        append("c3", 2, 3, "z", outcome="conflict", expect={"x": None}, actual={"x": 7}),
        trim(4, 5, 7),
    ],
    "wrong verdict, not what its own session has seen": [
        A,
        B,
        append("c2", 4, 5, "z", outcome="conflict", expect={"x": 5}, actual={"x": 10}),
    ],
    "wrong verdict, an empty stream is reported as it is": [
        A,
        B,
        append("c3", 4, 5, "z", outcome="conflict", expect={"x": None}, actual={"x": 10}),
    ],
    "wrong verdict, refused too early": [
        append("c2", 0, 0.5, "z", outcome="conflict", expect={"x": None}),
        msgspec.structs.replace(A, start=1, end=2),
    ],
    "stale, what its caller had seen": [
        A,
        token("c2", "c1", 1.5),
        read("c2", 2, 3, [], consistency="session"),
        read("c3", 4, 5, [SEEN_A]),
    ],
    "stale, what the child of its child has done": [
        A,
        token("c2", "c1", 1.5),
        token("c3", "c2", 1.6),
        read("c3", 2, 3, [], consistency="session"),
        read("c4", 4, 5, [SEEN_A]),
    ],
    "wrong verdict, a trim that forgets nothing": [
        A,
        trim(4, 5, 15, "x"),
        append("c2", 6, 7, "b", 20, tags=["x"], expect={"x": None}),
    ],
    "wrong verdict, above all that was forgotten": [
        A,
        forgets(15),
        append("c3", 6, 7, "z", outcome="conflict", expect={"y": 15}, actual={"y": None}),
    ],
    "wrong verdict, forgotten later": [append("c2", 2, 3, "b", 20, tags=["x"], expect={"x": None}), A, forgets(15)],
    "lost, a trim that reached beyond it had returned before it began": [
        A,
        trim(4, 5, 35),
        append("c1", 6, 7, "c", 30, tags=["x"]),
        read("c3", 8, 9, []),
    ],
    "wrong trim, nobody trimmed": [A, B, read("c3", 4, 5, [SEEN_B], trimmed=15)],
    "wrong trim, another stream was trimmed and forgot nothing": [
        A,
        trim(4, 5, 15, "x"),
        read("c3", 6, 7, [], tag="z", trimmed=10),
    ],
    "wrong trim, what was forgotten hides nothing that is found": [
        A,
        B,
        forgets(15),
        read("c3", 6, 7, [SEEN_B], tag="y", trimmed=10),
    ],
    "wrong trim, still shown": [A, B, trim(4, 5, 15), read("c3", 6, 7, [SEEN_A, SEEN_B])],
}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_wrong_with_a_good_history(name: str) -> None:
    assert check(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_each_anomaly_is_named(name: str) -> None:
    findings = check(BAD[name])
    assert name.split(",")[0] in {finding.anomaly for finding in findings}, findings
    assert all(finding.text and finding.calls for finding in findings)


def random_history(numbers: random.Random) -> list[Operation]:
    """Up to six calls on a true log, each taking effect at some instant; then perhaps a lie in one of them."""
    count = numbers.randrange(2, 7)
    instants = sorted(numbers.sample(range(100), count))
    log: list[tuple[int, str, tuple[str, ...]]] = []
    operations = []
    for number, instant in enumerate(instants):
        start, end = instant - numbers.random() * 30, instant + numbers.random() * 30
        client = f"c{number}"
        if numbers.random() < 0.5:
            tags = tuple(tag for tag in "xy" if numbers.random() < 0.5)
            seqnum = instant * 10 + 1
            log.append((seqnum, f"d{number}", tags))
            unknown = numbers.random() < 0.3
            operations.append(append(client, start, end, f"d{number}", None if unknown else seqnum, tags=tags))
        else:
            tag = numbers.choice(("", "x", "y"))
            rows = [(seqnum, data) for seqnum, data, tags in log if not tag or tag in tags]
            if rows and numbers.random() < 0.4:
                rows.pop(numbers.randrange(len(rows)))
            operations.append(read(client, start, end, rows, tag=tag))
    return operations


def brute_force(operations: Sequence[Operation]) -> bool:
    """Whether some order of the calls, true to real time, is a run of a log."""
    known = {data: seqnum for one in operations for seqnum, data in one.rows}
    known |= {one.data: one.seqnum for one in operations if one.seqnum is not None}
    needed = [one for one in operations if one.kind == "read" or one.data in known]
    for order in itertools.permutations(needed):
        late = any(
            b.end is not None and a.start > b.end and not _gave_up(b) for a, b in itertools.combinations(order, 2)
        )
        if not late and _is_a_run(order, known):
            return True
    return False


def _gave_up(one: Operation) -> bool:
    """A call of unknown outcome may take effect after its caller gave up."""
    return one.outcome == "unknown"


def _is_a_run(order: Sequence[Operation], known: dict[str, int]) -> bool:
    log: list[tuple[int, Operation]] = []
    for one in order:
        if one.kind == "append":
            if log and log[-1][0] >= known[one.data]:
                return False
            log.append((known[one.data], one))
        elif [row for row, _ in one.rows] != [s for s, a in log if not one.tag or one.tag in a.tags]:
            return False
    return True


@given(st.integers(0, 2**32))
def test_the_verdict_is_that_of_brute_force(seed: int) -> None:
    operations = random_history(random.Random(seed))
    assert (check(operations) == []) == brute_force(operations)


def long_history(clients: int, each: int) -> list[Operation]:
    numbers = random.Random(1)
    log: list[tuple[int, str]] = []
    operations = []
    now = 0.0
    free = dict.fromkeys((f"c{number}" for number in range(clients)), 0.0)
    for number in range(clients * each):
        client = min(free, key=lambda name: free[name])
        now = max(now + 0.001, free[client])
        start, end = now - 0.0004, now + numbers.random() * 0.01
        free[client] = end + 0.001
        if numbers.random() < 0.5:
            log.append((number + 1, f"d{number}"))
            operations.append(append(client, start, end, f"d{number}", number + 1))
        else:
            operations.append(read(client, start, end, log[-1:], low=log[-1][0] if log else 0))
    return [*operations, read("last", now + 1, now + 2, log)]


def test_ten_clients_with_two_thousand_calls_each_are_checked_and_one_lie_is_found() -> None:
    operations = long_history(10, 2_000)
    assert check(operations) == []
    lie = next(at for at in range(15_000, 20_000) if operations[at].kind == "read")
    operations[lie] = msgspec.structs.replace(operations[lie], rows=(), low=operations[lie].low - 500)
    (finding,) = check(operations)
    assert finding.anomaly == "stale"
    assert len(finding.calls) <= 4


def test_a_stream_that_is_too_young_is_not_forgotten() -> None:
    """Its newest record began at 0, and the trim had returned at 5."""
    reported_below = [A, forgets(15), read("c3", 6, 7, [], tag="z", trimmed=10)]
    empty_again = [A, forgets(15), append("c2", 6, 7, "b", 20, tags=["x"], expect={"x": None})]
    refused = [A, forgets(15), append("c3", 6, 7, "z", outcome="conflict", expect={"y": 5}, actual={"y": None})]
    for history, anomaly in (
        (reported_below, "wrong trim"),
        (empty_again, "wrong verdict"),
        (refused, "wrong verdict"),
    ):
        for old_enough in (0.0, 4.0, 5.0):
            assert check(history, forget_after_s=old_enough) == []
        assert [finding.anomaly for finding in check(history, forget_after_s=6.0)] == [anomaly]
    unknown = msgspec.structs.replace(forgets(15), outcome="unknown", end=None)
    assert check([A, unknown, reported_below[2]], forget_after_s=6.0) == [], "nobody knows when it took effect"
    young = append("c2", 3.5, 4.5, "young", 20, tags=["x"])
    assert check([A, young, *reported_below[1:]], forget_after_s=3.0) == [], "it may have come behind the trim"
