"""Timelines of workflows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bokiflow.model import flow_events as events
from bokiflow.model.delivery_order import RecordedEvents, recorded_events
from bokiflow.model.flow_events import AnyFlowEvent, Claimed, Ended, Started
from bokiflow.model.outcomes import Outcome
from bokiflow_tools.timeline import WIDTH, Span, Stretch, Timeline, axis, stretches, timeline

STARTED = Started("x", "f", "", [[], {}], 1_000, owner="a")
OK = Outcome(1)


def record(number: int, *made: AnyFlowEvent, seen: int = 0) -> RecordedEvents:
    return recorded_events(number, 1_000 + 10 * number, seen, made)


def spans(
    *records: RecordedEvents, claims: list[tuple[int, Claimed]] | None = None
) -> list[tuple[str, str, int, int | None]]:
    found = timeline(STARTED, records, claims or [], None).spans
    return [(span.kind, span.name or span.child, span.begin_ms, span.end_ms) for span in found]


def test_a_step_took_what_its_body_took() -> None:
    one = events.Stepped("x", "0:1", "add", "", 1_500, OK, 300, 2)
    (span,) = timeline(STARTED, [record(1, one)], [], None).spans
    assert span == Span("step", "add", "0:1", 1_200, 1_500, OK, attempts=2)


def test_what_the_code_did_it_did_at_the_delivery_before() -> None:
    step = events.Stepped("x", "0:1", "add", "", 1_500, OK, 300)
    did: list[AnyFlowEvent] = [
        events.Sleeping("x", "0:2", 9_000),
        events.Invoked("x", "0:3", "x/0:3", "g", ""),
        events.Emitted("x", "0:4", "t", 1),
    ]
    fired = events.Fired("x", "0:2", 9_001)
    assert spans(record(1, step, *did), record(2, fired)) == [
        ("step", "add", 1_200, 1_500),
        ("emit", "t", 1_500, 1_500),
        ("timer", "", 1_500, 9_001),
        ("child", "g", 1_500, None),
    ]


def test_what_a_transaction_called_runs_until_it_ends_or_calls_others() -> None:
    first, second = (events.Attempted("x", "0:1", "a", f"x/0:1~a:{n}", "book", 1_100 + 100 * n) for n in (1, 2))
    done = events.Transacted("x", "0:1", "trip", "", 1_900, OK, 5)
    assert spans(record(1, first), record(2, second), record(3, done)) == [
        ("child", "book", 1_200, 1_900),
        ("child", "book", 1_300, 1_900),
        ("transaction", "trip", 1_900, 1_900),
    ]


def test_what_came_from_others_has_the_time_of_its_record() -> None:
    invoked = events.Invoked("x", "0:1", "x/0:1", "g", "")
    came: list[AnyFlowEvent] = [
        events.Signalled("x", "go", 7),
        events.ChildEnded("x", "0:1", "x/0:1", OK),
        events.Cancelled("x", "no"),
    ]
    assert spans(record(1, invoked), *(record(number, one) for number, one in enumerate(came, 2))) == [
        ("child", "g", 1_000, 1_030),
        ("signal", "go", 1_020, 1_020),
        ("cancel", "no", 1_040, 1_040),
    ]


def test_a_lock_is_held_until_it_is_given_back_or_the_workflow_ends() -> None:
    locked = [events.Locked("x", key, f"l{key}", "", 1_500, 9) for key in ("0:1", "0:2")]
    back = events.Unlocked("x", "0:1", "l0:1")
    found = timeline(STARTED, [record(1, *locked), record(2, events.Fired("x", "0:3", 1_700), back)], [], None).spans
    assert [(span.name, span.begin_ms, span.end_ms) for span in found if span.kind == "lock"] == [
        ("l0:1", 1_500, 1_700), ("l0:2", 1_500, None),
    ]  # fmt: skip
    asked = events.Queued("x", "0:1", "l", 1_200, 8)
    waited = timeline(STARTED, [record(1, asked), record(2, locked[0])], [], None).spans
    assert [(span.kind, span.begin_ms, span.end_ms) for span in waited] == [
        ("queued", 1_200, 1_500),
        ("lock", 1_500, None),
    ]
    ended = Ended("x", 1, "f", "", OK, 2_000)
    over = timeline(STARTED, [record(1, *locked)], [], ended).spans
    assert [span.end_ms for span in over if span.kind == "lock"] == [2_000, 2_000]


def test_times_never_fall_whatever_clocks_say() -> None:
    late = events.Signalled("x", "go", 7)
    early = events.Stepped("x", "0:1", "add", "", 900, OK, 5)
    found = timeline(STARTED, [record(1, late), record(2, early, seen=1)], [], None)
    assert [span.end_ms for span in found.spans] == [1_010, 1_010] or found.spans[0].end_ms == 1_010


def test_a_timer_that_had_not_fired_is_not_shown_of_what_ended() -> None:
    sleeps = record(1, events.Sleeping("x", "0:1", 500_000))
    assert [one[0] for one in spans(sleeps)] == ["timer"]
    over = timeline(STARTED, [sleeps], [], Ended("x", 1, "f", "", OK, 2_000)).spans
    assert [span.kind for span in over] == ["end"]


def test_a_schedule_has_the_one_timer_that_it_waits_for() -> None:
    schedule = Started("schedule/n", "boki.schedule", "", [[], {}], 1_000, owner="a")
    first, second = (record(number, events.Sleeping("x", f"0:{number}", 90_000 + number)) for number in (1, 2))
    command = record(3, events.Signalled("x", "command", 1, "t"))
    for records, due_ms in (([first], [90_001]), ([first, second], [90_002]), ([first, second, command], [])):
        found = timeline(schedule, records, [], None).spans
        assert [span.due_ms for span in found if span.kind == "timer"] == due_ms
    assert [one[0] for one in spans(first, second)] == ["timer", "timer"], "of other code it is not known"


def test_what_it_launched_takes_no_time_and_a_child_is_open_until_it_ends() -> None:
    made = record(1, events.Invoked("x", "0:1", "x/0:1", "f", ""), events.Invoked("x", "0:2", "schedule/n/1", "f", ""))
    assert sorted(spans(made)) == [("child", "f", 1_000, None), ("launch", "f", 1_000, 1_000)]


def test_an_end_comes_after_all_else_though_an_older_program_recorded_it_earlier() -> None:
    ended = Ended("x", 1, "f", "", OK, 1_010)
    found = timeline(STARTED, [record(1, events.Cancelled("x", "no"))], [(5_000, Claimed("x", "b"))], ended)
    assert [(span.kind, span.begin_ms) for span in found.spans] == [
        ("cancel", 1_010),
        ("takeover", 5_000),
        ("end", 5_000),
    ]


def test_who_took_it_over_is_in_the_picture_but_not_who_took_it_first() -> None:
    claims = [(2_000, Claimed("x", "b")), (3_000, Claimed("x", "c"))]
    assert spans(claims=claims) == [("takeover", "b", 2_000, 2_000), ("takeover", "c", 3_000, 3_000)]
    nobody = Started("x", "f", "", [[], {}], 1_000)
    found = timeline(nobody, [], claims, None).spans
    assert [(span.name, span.value) for span in found] == [("c", "b")]


def test_the_end_is_the_last_row() -> None:
    ended = Ended("x", 1, "f", "", OK, 2_000)
    found = timeline(STARTED, [], [], ended)
    assert (found.end_ms, found.last_ms(9_000), found.spans[-1].kind) == (2_000, 2_000, "end")
    assert timeline(STARTED, [], [], None).last_ms(9_000) == 9_000


def test_it_is_busy_with_a_step_rather_than_with_the_timer_beside_it() -> None:
    line = Timeline([Span("timer", "", "a", 1_000, 5_000), Span("step", "s", "b", 2_000, 3_000)], 1_000, 6_000)
    assert stretches(line, 6_000) == [
        Stretch("timer", 1_000, 2_000),
        Stretch("step", 2_000, 3_000),
        Stretch("timer", 3_000, 5_000),
        Stretch("nothing", 5_000, 6_000),
    ]


def test_a_timer_that_may_be_cancelled_counts_until_it_is_due_at_most() -> None:
    line = Timeline([Span("timer", "", "a", 1_000, None, due_ms=2_000)], 1_000, None)
    assert stretches(line, 6_000) == [Stretch("timer", 1_000, 2_000), Stretch("nothing", 2_000, 6_000)]
    assert stretches(line, 1_500) == [Stretch("timer", 1_000, 1_500)]


@pytest.mark.parametrize(("end_ms", "use"), [(None, "child"), (6_000, "nothing")])
def test_what_has_no_end_counts_only_while_the_workflow_runs(end_ms: int | None, use: str) -> None:
    line = Timeline([Span("child", "g", "a", 1_000, None)], 1_000, end_ms)
    assert stretches(line, 6_000) == [Stretch(use, 1_000, 6_000)]  # type: ignore[arg-type]


def test_the_axis_is_in_proportion_unless_short_things_would_vanish() -> None:
    even = Timeline([Span("step", "s", str(at), at, at + 10) for at in range(0, 100, 10)], 0, 100)
    assert not axis(even, 100).bent and axis(even, 100).place(50) == pytest.approx(500)
    long = Timeline([*even.spans, Span("timer", "", "t", 100, 86_400_000)], 0, 86_400_000)
    bent = axis(long, 86_400_000)
    assert bent.bent and bent.place(100) > WIDTH / 20, "a hundred milliseconds beside a day"
    empty = axis(Timeline([], 5, 5), 5)
    assert empty.place(5) == 0


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=20))
def test_the_axis_never_runs_backwards_and_places_name_their_moments(pairs: list[tuple[int, int]]) -> None:
    made = [Span("step", "s", "k", min(one), max(one)) for one in pairs]
    last_ms = max([span.end_ms or 0 for span in made], default=1)
    scale = axis(Timeline(made, 0, last_ms), last_ms)
    moments = sorted({ms for span in made for ms in (span.begin_ms, span.end_ms or 0)})
    places = [scale.place(ms) for ms in moments]
    assert places == sorted(places) and all(0 <= place <= WIDTH for place in places)
    for ms, place in zip(moments, places, strict=True):
        assert scale.moment(place) == pytest.approx(ms, abs=max(1.0, last_ms * 1e-6))
    found = stretches(Timeline(made, 0, last_ms), last_ms)
    assert not found or (found[0].begin_ms, found[-1].end_ms) == (0, last_ms)
    assert all(a.end_ms == b.begin_ms and a.use != b.use for a, b in pairwise(found))
