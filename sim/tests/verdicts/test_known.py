"""What sessions knew, and when."""

from __future__ import annotations

from boki_sim.checkers.history import Operation
from boki_sim.verdicts.known import Known, WhatIsKnown
from boki_sim.work.operations import ANY, APPEND, OK, READ, TOKEN, UNKNOWN


def answered(client: str, seqnum: int, end: float) -> Operation:
    return Operation(client, APPEND, "b", end - 1, outcome=OK, end=end, seqnum=seqnum)


def test_what_was_answered_before_is_known() -> None:
    known = Known()
    known.learn(1.0, 10)
    known.learn(2.0, 5)
    assert [known.before(at) for at in (1.0, 1.5, 2.5)] == [0, 10, 10]
    assert [known.upto(at) for at in (0.5, 1.0, 2.5)] == [0, 10, 10]


def test_sessions_know_what_they_were_answered_and_took_over() -> None:
    by_any = Operation("c", READ, "b", 1.0, 1.5, OK, rows=((90, "x"),), consistency=ANY)
    lost = Operation("c", APPEND, "b", 1.0, outcome=UNKNOWN, end=1.5)
    taken = Operation("child", TOKEN, "", 3.0, outcome=OK, end=3.0, of="c")
    known = WhatIsKnown([answered("c", 10, 2.0), taken, answered("c", 20, 4.0), by_any, lost])
    assert [known.by("c", at) for at in (2.0, 2.5, 5.0)] == [0, 10, 20]
    assert [known.by("child", at) for at in (2.5, 3.5, 5.0)] == [0, 10, 10]
    assert known.anybody.before(2.5) == 90
