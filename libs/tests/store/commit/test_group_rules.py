"""Who joins a group, who runs again. The search over all schedules is in `libs/tests/models`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bokilib.records.contribution import Contribution, joined
from bokilib.records.events import Event
from bokilib.records.isolation import Isolation
from bokistore.commit.group_rules import (
    Draft,
    Member,
    NewestSeqnums,
    Standing,
    after_conflict,
    must_see,
    outdated,
    standing,
)


class Did(Event, tag="mine.did", frozen=True):
    id: str


def member(
    number: int,
    read: str = "",
    written: str = "",
    *,
    isolation: Isolation = "serializable",
    snapshot: int = 7,
    ran_on: tuple[int, ...] = (),
    fences: dict[str, int | None] | None = None,
    size: int = 10,
) -> Member:
    expect = dict.fromkeys([*read, *written] if isolation == "serializable" else written, snapshot)
    part = Contribution(tuple(written), {**expect, **(fences or {})}, (Did(str(number)),) if written else ())
    return Member(
        number,
        isolation,
        frozenset(read),
        frozenset(written),
        frozenset(written),
        fences or {},
        part,
        size,
        frozenset(ran_on),
    )


def draft_of(members: list[Member]) -> tuple[Draft, list[Member]]:
    """A record of those that join it in order, and the others."""
    draft, others = Draft(), []
    for one in members:
        if standing(one, draft, NewestSeqnums()) is Standing.JOINS:
            draft.add(one)
        else:
            others.append(one)
    return draft, others


def test_who_read_what_an_earlier_one_writes_has_to_see_it() -> None:
    first = member(1, "x", "x")
    assert must_see(member(2, "x", "y"), first)
    assert not must_see(member(2, "y", "x"), first), "what is only written comes after it, in the record"
    assert not must_see(member(2, "x", "y", ran_on=(1,)), first), "it has seen it"
    assert not must_see(member(2, "x", "y", isolation="snapshot"), first), "it may well see the snapshot"
    assert must_see(member(2, "x", "x", isolation="snapshot"), first), "else the first one's update is lost"
    assert must_see(member(2, "y", "x", isolation="snapshot"), first), "two that write one object are not concurrent"


def test_a_group_expects_the_lowest_snapshot_of_each_stream() -> None:
    draft, others = draft_of([member(1, "x", "x", snapshot=9), member(2, "xy", "y", snapshot=5, ran_on=(1,))])
    assert draft.part().expect == {"x": 5, "y": 5}
    assert [one.number for one in draft.members] == [1, 2] and others == []


def test_a_member_that_does_not_fit_waits_and_one_on_its_state_runs_again() -> None:
    members = [
        member(1, "", "x", size=300_000),
        member(2, "", "y", size=300_000),
        member(3, "y", "z", ran_on=(2,)),
        member(4, "", "w"),
    ]
    draft, others = draft_of(members)
    assert [one.number for one in draft.members] == [1, 4]
    assert [standing(one, draft, NewestSeqnums()) for one in others] == [Standing.WAITS, Standing.RUNS_AGAIN]
    alone, _ = draft_of([member(1, "", "x", size=10**7), member(2, "", "y")])
    assert [one.number for one in alone.members] == [1], "it is refused by itself, and takes nobody along"


def test_a_record_takes_so_many_streams_and_expectations() -> None:
    def on(number: int) -> Member:
        part = Contribution((f"t{number}",), {f"t{number}": 5, f"e{number}": 5}, (Did(str(number)),))
        return Member(number, "snapshot", frozenset(), frozenset(), frozenset(part.tags), {}, part, 10)

    draft, others = draft_of([on(number) for number in range(200)])
    assert (len(draft.members), len(others)) == (128, 72), "256 expectations"
    assert len(draft.part().expect) == 256


def test_who_expects_that_an_id_is_new_waits_for_another_who_begins_it() -> None:
    def begins(number: int) -> Member:
        part = Contribution(("own",), {"own": None}, (Did(str(number)),))
        return Member(number, "snapshot", frozenset(), frozenset(), frozenset(), {"own": None}, part, 10, frozenset())

    draft, others = draft_of([begins(1), member(2, "", "x", fences={"claim": 3}), begins(3)])
    assert ([one.number for one in draft.members], [one.number for one in others]) == ([1, 2], [3])
    assert standing(others[0], draft, NewestSeqnums()) is Standing.WAITS


def test_a_member_of_which_something_is_known_to_have_moved_is_not_sent() -> None:
    newest = NewestSeqnums(limit=2)
    one = member(1, "x", "x", snapshot=7, fences={"f": 3})
    newest.moved(["x"], 7)
    newest.moved(["f"], 9)
    assert outdated(one, newest) == 0, "what moved, it saw; a fence is the log's to judge"
    newest.moved(["x"], 8)
    assert (outdated(one, newest), standing(one, Draft(), newest)) == (8, Standing.RUNS_AGAIN)
    newest.moved(["x"], 5)
    assert outdated(one, newest) == 8, "the newest counts"
    newest.moved(["y", "z"], 10)
    assert outdated(one, newest) == 0, "it keeps so many streams; what it forgot costs a Conflict"


def test_those_who_ran_on_one_that_was_given_up_run_again() -> None:
    members = [
        member(1, "", "x"),
        member(2, "x", "y", ran_on=(1,)),
        member(3, "y", "z", ran_on=(2,)),
        member(4, "", "w"),
    ]
    draft, _ = draft_of(members)
    rest, dependents = draft.without([1])
    assert ([one.number for one in rest.members], dependents) == ([4], [2, 3])


def test_who_ran_on_the_state_of_one_that_failed_runs_again_and_so_on() -> None:
    members = [
        member(1, "x", "x"),
        member(2, "x", "y", ran_on=(1,)),
        member(3, "y", "z", ran_on=(2,)),
        member(4, "u", "u"),
    ]
    verdict = after_conflict(members, {"x": 8})
    assert [one.number for one in verdict.again] == [1, 2, 3]
    assert [one.number for one in verdict.kept] == [4]
    assert after_conflict(members, {"x": 7}).again == [], "as it was expected"
    assert [one.number for one in after_conflict(members, {"u": None}).again] == [4], "forgotten is moved"


def test_a_moved_fence_drops_its_members_and_those_on_their_state_run_again() -> None:
    members = [member(1, "x", "x", fences={"f": 3}), member(2, "x", "y", ran_on=(1,)), member(3, "u", "u")]
    verdict = after_conflict(members, {"f": 4})
    assert [one.number for one in verdict.dropped] == [1]
    assert [one.number for one in verdict.again] == [2]
    assert [one.number for one in verdict.kept] == [3]


MEMBERS = st.lists(
    st.tuples(st.sampled_from(["", "x", "y", "xy"]), st.sampled_from(["", "x", "y", "z"]), st.integers(1, 9)),
    max_size=6,
).map(
    lambda rows: [
        member(number, read, written, snapshot=snapshot) for number, (read, written, snapshot) in enumerate(rows)
    ]
)


@given(MEMBERS, st.dictionaries(st.sampled_from("xyz"), st.integers(1, 12)))
def test_everybody_gets_one_verdict_and_who_is_kept_holds_still(members: list[Member], newest: dict[str, int]) -> None:
    draft, others = draft_of(members)
    assert sorted(one.number for one in [*draft.members, *others]) == [one.number for one in members]
    assert draft.part() == joined(one.part for one in draft.members)
    verdict = after_conflict(members, newest)
    assert sorted(one.number for part in verdict for one in part) == [one.number for one in members]
    for one in verdict.kept:
        assert all(newest.get(tag, 0) <= (seqnum or 0) for tag, seqnum in one.part.expect.items())
