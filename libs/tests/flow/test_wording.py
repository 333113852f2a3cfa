"""The words for workflows, on one line for any values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from boki_gateway.pages.markup import make
from bokiflow.history.instance_state import InstanceState
from bokiflow.model import flow_events as events
from bokiflow.model.delivery_order import recorded_events
from bokiflow.model.flow_events import Ended, Started
from bokiflow.model.outcomes import CANCELLED_OUTCOME, Detail, Failure, Outcome, failed
from bokiflow.model.stacks import with_users_stack
from bokiflow_tools.drawing import stack_block
from bokiflow_tools.timeline import Life, Span
from bokiflow_tools.wording import (
    IDLE_CLAIMS,
    OPEN_ROWS,
    STACK_LINES,
    call_text,
    idle_text,
    life_facts,
    life_lines,
    listed_facts,
    listed_line,
    listed_reason,
    outcome_text,
    shortened,
    span_facts,
    span_line,
)

EVIL = "a\x1b[31m\nb"
SHOWN = "a\\x1b[31m\\nb"
STARTED = Started(EVIL, EVIL, "", [[EVIL], {EVIL: 1}], 1_000, EVIL, EVIL, "w", EVIL, "", {EVIL: EVIL})
ENDED = Ended(EVIL, 1, EVIL, "", failed(ValueError(EVIL)), 3_500)


def test_what_others_wrote_never_moves_a_cursor() -> None:
    spans = [
        Span("signal", EVIL, "", 5, 5, value=EVIL),
        Span("step", EVIL, "0:1", 5, 9, failed(ValueError(EVIL))),
        Span("child", EVIL, "0:1", 5, None, child=EVIL),
        Span("cancel", EVIL, "", 5, 5),
        Span("takeover", EVIL, "", 5, 5, value=EVIL),
    ]
    lines = [span_line(span, 0) for span in spans]
    lines += life_lines(Life(EVIL, STARTED, [], ENDED, [], 1), str)
    lines += life_lines(Life(EVIL, STARTED, [], None, [], 1), str)
    lines += [
        listed_line(STARTED, InstanceState(1, "w"), "now"),
        listed_line(STARTED, InstanceState(1, "", ENDED), "now"),
    ]
    assert all(line.isprintable() for line in lines)
    assert any(SHOWN in line for line in lines)


def test_a_call_as_one_would_write_it() -> None:
    assert call_text("pay", [["7", 2], {"why": None}]) == 'pay("7", 2, why=null)'


def test_ends_in_words() -> None:
    assert outcome_text(Outcome([1])) == "[1]"
    assert outcome_text(failed(ValueError("no"))) == "ValueError: no"
    assert outcome_text(None) == ""


def test_rows_of_a_timeline() -> None:
    assert span_line(Span("step", "pay", "0:1", 1_010, 1_030, Outcome(7), attempts=2), 1_000) == (
        "   +10 ms  step         pay  2 attempts  20 ms  → 7"
    )
    assert span_line(Span("timer", "", "0:2", 2_000, None, due_ms=62_000), 1_000).endswith(
        "timer of 60.0 s  open, unless it was cancelled"
    )
    assert span_facts(Span("child", "f", "0:1", 1, 2, Outcome(1), child="x/0:1")) == {
        "kind": "child", "name": "f", "key": "0:1", "begin_ms": 1, "end_ms": 2, "workflow": "x/0:1", "result": 1,
    }  # fmt: skip


def test_a_list_has_the_error_of_what_failed_or_is_blocked_cut_to_its_room() -> None:
    assert listed_reason(InstanceState(1, "", ENDED)) == f"ValueError: {SHOWN}"
    assert listed_reason(InstanceState(1, "", Ended("x", 1, "f", "", Outcome(7), 2))) == ""
    assert listed_reason(InstanceState(1, "", Ended("x", 1, "f", "", CANCELLED_OUTCOME, 2))) == ""
    claim = events.Claimed("x", "", blocked="WorkflowStuck: it ran on\n  File f, line 1, in spin")
    assert listed_reason(InstanceState(1, newest=claim)) == "WorkflowStuck: it ran on"
    assert shortened("a" * 60, 50) == "a" * 49 + "…" and shortened("a" * 60, 60) == "a" * 60
    assert shortened("a" * 60, -3) == "a" * 39 + "…", "a narrow terminal wraps it rather than loses it"


def test_a_launched_workflow_has_its_status_and_a_step_that_was_begun_says_so() -> None:
    launched = Span("launch", "report", "0:2", 5, 5, child="schedule/n/1")
    assert span_line(launched, 5).endswith("launch       report  schedule/n/1  → started")
    assert span_line(launched._replace(value="completed"), 5).endswith("schedule/n/1  → completed")
    assert span_facts(launched._replace(value="completed"))["status"] == "completed"
    assert span_line(Span("step", "pay", "0:1", 5, None), 5).endswith("pay  begun, has not ended")


def test_lists_for_programs_are_exact() -> None:
    facts = listed_facts(9, STARTED, InstanceState(1, "", ENDED))
    assert facts["id"] == EVIL and facts["status"] == "failed" and facts["error"]["message"] == EVIL
    record = recorded_events(1, 1, 0, [events.Signalled("x", "go", 1)])
    whole = life_facts(Life(EVIL, STARTED, [], None, [record], 1))
    assert whole["args"] == [[EVIL], {EVIL: 1}] and whole["attributes"] == {EVIL: EVIL} and "result" not in whole
    assert whole["idle_claims"] == 0
    unknown = life_facts(Life("x", None, [], ENDED, None, 1, result_kept=False))
    assert [unknown[name] for name in ("started_ms", "attributes", "group", "parent")] == [None] * 4
    assert "result" not in unknown and "error" not in unknown
    lines = life_lines(Life("x", None, [], ENDED, None, 1), str)
    assert lines[-1].endswith("its history is not kept any more (failed_history_s)")


def test_the_stack_of_a_failed_and_of_a_stuck_workflow_is_shown() -> None:
    def charge() -> None:
        raise ValueError("no money")

    with pytest.raises(ValueError) as caught:
        charge()
    outcome = failed(caught.value)
    failed_one = Life("x", STARTED, [], Ended("x", 1, "f", "", outcome, 3_500), [], 1)
    lines = life_lines(failed_one, str)
    assert "stack, innermost call last:" in lines and any(line.endswith("in charge") for line in lines)
    assert "in charge" in life_facts(failed_one)["error"]["stack"]
    stuck = life_lines(Life("x", STARTED, [], None, [], 1, "WorkflowStuck: it ran on\n  File f, line 1, in spin"), str)
    assert "blocked   WorkflowStuck: it ran on" in stuck and stuck[-1] == "  File f, line 1, in spin"


def test_errors_of_a_group_and_causes_are_shown_with_their_stacks() -> None:
    def order() -> None:
        try:
            raise KeyError("visa")
        except KeyError as declined:
            raise RuntimeError("order 7") from declined

    def raised(call: Callable[[], None]) -> Exception:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - any error is returned
            return error
        raise AssertionError

    group = ExceptionGroup("unhandled errors in a TaskGroup", [raised(order), ValueError(EVIL)])
    life = Life("x", STARTED, [], Ended("x", 1, "f", "", failed(group), 3_500), [], 1)
    lines = life_lines(life, str)
    assert f"[RuntimeError: order 7 (cause: KeyError: 'visa'); ValueError: {SHOWN}]" in "".join(lines)
    places = [lines.index(one) for one in ("error 1 of 2: RuntimeError: order 7", "  cause: KeyError: 'visa'")]
    assert places == sorted(places) and lines[-1] == f"error 2 of 2: ValueError: {SHOWN}"
    assert all("in order" in "".join(lines[place:]) for place in places), "each has its stack"
    error = life_facts(life)["error"]
    assert error["errors"][0]["cause"]["message"] == "'visa'" and "in order" in error["errors"][0]["cause"]["stack"]
    assert error["errors"][1] == {"type": "builtins:ValueError", "message": EVIL}
    many = ExceptionGroup("many", [ExceptionGroup(str(n), [raised(order)] * 16) for n in range(16)])
    long = life_lines(life._replace(ended=Ended("x", 1, "f", "", failed(many), 3_500)), str)
    assert len(long) < STACK_LINES + 20 and long[-1].endswith("`boki flow show x --json` has all")


BOKIS = """  File "/usr/lib/python3/site-packages/bokiflow/execute/body.py", line 38, in run_body
    value = await step.function(*args, **options)
"""
USERS = """  File "/srv/boki/shop.py", line 7, in charge
    raise ValueError(card)
    ^^^^^^^^^^^^^^^^^^^^^^
"""


def test_frames_of_bokis_own_code_are_shown_only_where_they_are_asked_for() -> None:
    shown = "".join(make("div", stack_block(BOKIS + USERS)).itertext())
    assert "shop.py" in shown and "body.py" not in shown
    claim = events.Claimed("x", "", blocked=f"WorkflowStuck: it ran on\n{BOKIS}{USERS}")
    assert (
        listed_facts(9, STARTED, InstanceState(1, newest=claim))["blocked"] == f"WorkflowStuck: it ran on\n{USERS[:-1]}"
    )
    assert span_line(Span("blocked", claim.blocked, "", 5, 5), 5).endswith("→ WorkflowStuck: it ran on")
    life = Life("x", STARTED, [], None, [], 1, f"WorkflowStuck: it ran on\n{BOKIS}{USERS}")
    assert not any("bokiflow" in line for line in life_lines(life, str))
    assert any("bokiflow" in line for line in life_lines(life, str, full_stack=True))
    below = Failure("a:E", "x", detail=Detail(BOKIS + USERS))
    known = with_users_stack(Outcome(None, Failure("a:E", "x", detail=Detail(BOKIS + USERS, [], below, [below]))))
    assert known.error is not None and known.error.cause is not None
    assert [one.stack for one in (known.error, known.error.cause, *known.error.errors)] == [USERS[:-1]] * 3


def test_a_fork_names_its_origin_and_who_cancels_says_why() -> None:
    record = recorded_events(1, 1, 0, [events.Cancelled("x", "wrong address"), events.Cancelled("x")])
    life = Life("x", STARTED, [], None, [record], 1, origin="order-7")
    lines = life_lines(life, str)
    assert "fork of   order-7" in lines and "cancel    wrong address" in lines and "cancel    no reason given" in lines
    facts = life_facts(life)
    assert facts["origin"] == "order-7" and facts["cancels"] == ["wrong address", ""]


def test_a_running_one_shows_its_open_timers_children_and_begun_steps() -> None:
    made = (
        events.Sleeping("x", "0:1", 62_000),
        events.Invoked("x", "0:2", "x/0:2", "pack", ""),
        events.Begun("x", "0:3", "pay"),
    )
    done = events.Stepped("x", "0:4", "add", "", 1_500, Outcome(1), 5)
    life = Life("x", STARTED, [], None, [recorded_events(1, 1, 0, [*made, done])], 1)
    assert [line for line in life_lines(life, str) if line.startswith("open")] == [
        "open      timer of 61.0 s, until 62000, unless it was cancelled",
        "open      child pack x/0:2, begun 1000",
        "open      step pay, begun 1000",
    ]
    assert [one["kind"] for one in life_facts(life)["open"]] == ["timer", "child", "step"]
    many = [events.Begun("x", f"0:{number}", "pay") for number in range(OPEN_ROWS + 2)]
    lines = life_lines(life._replace(records=[recorded_events(1, 1, 0, many)]), str)
    assert lines[-1] == "open      2 more: `boki flow steps` has all"
    assert life_facts(life._replace(ended=ENDED))["open"] == []


def test_people_are_told_of_takeovers_in_vain() -> None:
    life = Life("x", STARTED, [], None, [], 1, idle_claims=IDLE_CLAIMS)
    assert f"takeovers {idle_text(life)}" in life_lines(life, str)
    for other in (
        life._replace(idle_claims=IDLE_CLAIMS - 1),
        life._replace(blocked="WorkflowStuck: it ran on"),
        life._replace(ended=ENDED),
    ):
        assert idle_text(other) == "" and not any(line.startswith("takeovers") for line in life_lines(other, str))
