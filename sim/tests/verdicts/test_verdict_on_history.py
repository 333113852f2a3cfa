"""Histories made by hand: the good ones pass, each anomaly is named."""

from __future__ import annotations

import pytest

from boki_sim.checkers.history import Consistency, Operation, Outcome, Read
from boki_sim.verdicts.verdict_on_history import Entry, judge
from boki_sim.work.operations import ANY, AT, CONFLICT, LINEARIZABLE, NEVER, NEXT, OK, READ, TOKEN, TRIM, UNKNOWN

LOG = [Entry(10, "one", ("a",)), Entry(20, "two", ()), Entry(30, "three", ("a", "b"))]


def append(data: str, seqnum: int | None, at: float, **facts: object) -> Operation:
    tags = next((entry.tags for entry in LOG if entry.data == data), ())
    made = Operation("c", "append", "b", at, at + 0.5, OK, data=data, tags=tags, seqnum=seqnum)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def read(how: Read, tag: str, bound: int | None, seqnum: int | None, at: float, data: str = "") -> Operation:
    made = Operation("c", READ, "b", at, at + 0.5, OK, tag=tag, how=how)
    if how in (NEXT, AT):
        made.low = bound or 0
    elif bound is not None:
        made.high = bound + 1
    if seqnum is not None:
        made.rows = ((seqnum, next((entry.data for entry in LOG if entry.seqnum == seqnum), data)),)
    return made


def trim(tag: str, before: int, at: float, outcome: Outcome = OK) -> Operation:
    return Operation("t", TRIM, "b", at, at + 0.5, outcome, tag=tag, before=before)


def by(client: str, operation: Operation, consistency: Consistency) -> Operation:
    operation.client, operation.consistency = client, consistency
    return operation


GOOD = [append("one", 10, 1), append("two", 20, 2), append("three", 30, 3)]


def verdict(*operations: Operation, log: list[Entry] | None = None) -> list[str]:
    return list(judge(operations, {"b": LOG if log is None else log}))


def test_a_good_history_passes() -> None:
    assert (
        verdict(
            *GOOD,
            append("lost", None, 4, outcome=CONFLICT),
            append("never sent", None, 4, outcome=NEVER),
            append("perhaps", None, 4, outcome=UNKNOWN),
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
        (GOOD, [*LOG, Entry(40, "one", ("a",))], "duplicate: one is at 10 and at 40"),
        (GOOD[:2], LOG, "phantom: nobody appended three at 30"),
        (GOOD, [LOG[0], LOG[1], Entry(30, "three", ("a",))], "three has tags ('a',)"),
        ([*GOOD[:2], append("three", None, 3, outcome=CONFLICT)], LOG, "three was refused"),
        ([*GOOD[:2], append("three", None, 3, outcome=NEVER)], LOG, "three was refused"),
        ([append("one", 10, 7), *GOOD[1:]], LOG, "reordered: one began at 7"),
        ([*GOOD[:2], append("three", 30, 3, expect={"a": None})], LOG, "expected a to end at None, but it had 10"),
        ([*GOOD, read("next", "a", 0, 30, 5)], LOG, "got 30, passing by 10"),
        ([*GOOD, read("next", "", 15, None, 5)], LOG, "got None, passing by 20"),
        ([*GOOD, read("next", "", 15, 10, 5)], LOG, "got 10"),
        ([*GOOD, read("tail", "a", None, 10, 5)], LOG, "got 10, passing by 30, which was known"),
        ([*GOOD, read("prev", "", 25, 10, 5)], LOG, "passing by 20"),
        ([*GOOD, read("prev", "", 15, 20, 5)], LOG, "from 15 (session) at 5.0000 s and got 20"),
        ([*GOOD, read("next", "", 40, 41, 5, "ghost")], LOG, "got 41 ghost, which is not in the log"),
        (GOOD, [LOG[1], LOG[0], LOG[2]], "seqnum 10 comes after 20"),
    ],
)  # fmt: skip
def test_each_anomaly_is_named(operations: list[Operation], log: list[Entry], said: str) -> None:
    found = verdict(*operations, log=log)
    assert any(said in text for text in found), found


def test_a_session_knows_only_answers_from_before_the_read_began() -> None:
    late = append("three", 30, 3)
    early = read("tail", "", None, 20, 3.2)
    assert verdict(*GOOD[:2], late, early) == []
    other = read("tail", "", None, 20, 5)
    other.client = "another"
    assert verdict(*GOOD[:2], late, other) == []


def test_what_was_trimmed_may_be_gone_and_nothing_else() -> None:
    rest = LOG[1:]
    assert verdict(*GOOD, trim("", 11, 4), log=rest) == []
    assert verdict(*GOOD, trim("a", 11, 4, UNKNOWN), log=rest) == []
    assert any("lost: one" in text for text in verdict(*GOOD, trim("", 10, 4), log=rest))
    assert any("lost: one" in text for text in verdict(*GOOD, trim("b", 31, 4), log=rest))
    assert any("lost: one" in text for text in verdict(*GOOD, trim("a", 31, 4, NEVER), log=rest))
    assert any("lost: three" in text for text in verdict(*GOOD, trim("a", 31, 4), log=LOG[1:2])), "b still holds it"
    assert verdict(*GOOD, trim("a", 31, 4), trim("b", 31, 4), log=LOG[1:2]) == []


def test_what_was_trimmed_before_the_books_were_read_is_not_there() -> None:
    said = list(judge([*GOOD, trim("", 11, 4)], {"b": LOG}, read_from=9))
    assert said == ["book b: trimmed: one at 10 is there after its trim was acknowledged"]
    assert list(judge([*GOOD, trim("", 11, 4)], {"b": LOG}, read_from=4.2)) == []
    assert list(judge([*GOOD, trim("a", 31, 4)], {"b": LOG[1:]}, read_from=9)) == []
    assert list(judge([*GOOD, trim("", 11, 4, UNKNOWN)], {"b": LOG}, read_from=9)) == []


def test_a_condition_is_held_to_records_that_were_trimmed_since() -> None:
    wrong = append("three", 30, 3, expect={"a": None})
    assert any("but it had 10" in text for text in verdict(GOOD[0], GOOD[1], wrong, trim("", 11, 4), log=LOG[1:]))


def test_reads_may_miss_what_is_being_trimmed_linearizable_ones_never_show_it() -> None:
    below = trim("", 21, 5)
    assert verdict(*GOOD, below, read("next", "", 0, 30, 5.2)) == []
    assert verdict(*GOOD, below, read("next", "", 0, 10, 5.2), log=LOG[2:]) == []
    assert any("passing by 10" in text for text in verdict(*GOOD, below, read("next", "", 0, 30, 4)))
    assert any("passing by 30" in text for text in verdict(*GOOD, below, read("tail", "", None, None, 9)))
    shown = by("x", read("next", "", 0, 10, 7), LINEARIZABLE)
    assert any("after its trim was acknowledged" in text for text in verdict(*GOOD, below, shown, log=LOG[2:]))
    assert verdict(*GOOD, below, by("x", read("next", "", 0, 10, 7), "session"), log=LOG[2:]) == []
    trimmed_read = read("next", "", 0, None, 7)
    trimmed_read.trimmed = 21
    assert verdict(*GOOD, below, trimmed_read, log=LOG[2:]) == []


def test_a_linearizable_read_sees_what_anybody_was_answered_and_others_need_not() -> None:
    def late(consistency: Consistency) -> list[str]:
        return verdict(*GOOD, by("another", read("tail", "", None, 20, 4), consistency))

    assert any("passing by 30, which was known" in text for text in late(LINEARIZABLE))
    assert late("session") == late(ANY) == []
    behind = by("c", read("tail", "", None, 20, 4), ANY)
    assert verdict(*GOOD, behind) == [], "any engine's word may be old, whatever the session knows"


def test_a_read_gives_nothing_beyond_what_its_session_then_claims_to_have_seen() -> None:
    half = read("tail", "", None, 30, 5)
    half.position = 20
    assert any("got 30, beyond 20" in text for text in verdict(*GOOD, half))
    half.position = 30
    assert verdict(*GOOD, half) == []


def at(bound: int, seqnum: int | None, start: float) -> Operation:
    return read(AT, "", bound, seqnum, start)


def test_a_point_read_gives_the_record_of_that_place_if_it_was_known() -> None:
    assert verdict(*GOOD, at(20, 20, 5), at(21, None, 5), at(31, None, 5)) == []
    assert any("from 20 (session) at 5.0000 s and got nothing" in text for text in verdict(*GOOD, at(20, None, 5)))
    assert any("from 21 (session) at 5.0000 s and got 20" in text for text in verdict(*GOOD, at(21, 20, 5)))
    assert verdict(*GOOD, by("another", at(20, None, 5), "session")) == []
    assert verdict(*GOOD, trim("", 21, 4), at(20, None, 5), log=LOG[2:]) == []


def token(client: str, of: str, start: float) -> Operation:
    return Operation(client, TOKEN, "", start, outcome=OK, end=start, of=of)


def test_who_took_over_a_position_sees_what_was_known_then() -> None:
    late = by("child", read("tail", "", None, 20, 5), "session")
    assert verdict(*GOOD, late) == []
    assert verdict(*GOOD, token("child", "c", 3.2), late) == [], "three was not acknowledged yet"
    assert any("passing by 30, which was known" in text for text in verdict(*GOOD, token("child", "c", 4), late))
    again = by("caller", read("tail", "", None, 20, 7), "session")
    handed = (token("child", "c", 4), token("caller", "child", 6))
    assert any("caller read tail" in text for text in verdict(*GOOD, *handed, again))


def forgets(tag: str, before: int, start: float) -> Operation:
    made = trim(tag, before, start)
    made.forget = True
    return made


def test_a_stream_is_empty_again_when_it_was_trimmed_and_forgotten_and_was_old() -> None:
    log = [LOG[1], Entry(40, "four", ("a",))]
    four = Operation("c", "append", "b", 6.0, 6.5, OK, tags=("a",), data="four", expect={"a": None}, seqnum=40)
    taken = [GOOD[0], GOOD[1], trim("", 11, 4)]

    def said(*operations: Operation, after_s: float) -> list[str]:
        return list(judge([*taken, *operations, four], {"b": log}, forget_after_s=after_s))

    assert said(forgets("a", 1, 5), after_s=3) == [], "another trim has emptied it"
    for wrong in (
        said(forgets("a", 1, 5), after_s=3_600),
        said(trim("a", 1, 5), after_s=3),
        said(forgets("b", 1, 5), after_s=3),
        said(forgets("a", 1, 7), after_s=3),
    ):
        assert any("expected a to end at None, but it had 10" in text for text in wrong)
