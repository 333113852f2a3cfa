"""Stack traces of users' errors: without the frames of Boki's own code."""

from __future__ import annotations

from bokiflow.model.outcomes import CANCELLED_OUTCOME, Detail, Failure, Outcome
from bokiflow.model.stacks import place_of, stuck, users_stack, with_users_stack

BOKIS = """  File "/usr/lib/python3/site-packages/bokiflow/execute/body.py", line 38, in run_body
    value = await step.function(*args, **options)
"""
USERS = """  File "/srv/boki/shop.py", line 7, in charge
    raise ValueError(card)
    ^^^^^^^^^^^^^^^^^^^^^^
"""
AGAIN = "\nraised again by the workflow:\n"


def test_frames_of_bokis_own_code_are_left_out_unless_there_are_no_others() -> None:
    assert users_stack(BOKIS + USERS) == USERS.rstrip("\n")
    assert users_stack(BOKIS + USERS + AGAIN + BOKIS + USERS) == USERS + AGAIN + USERS.rstrip("\n")
    assert users_stack(BOKIS) == BOKIS and users_stack("") == ""


def test_no_heading_is_left_of_a_stack_that_is_left_out() -> None:
    assert users_stack(BOKIS + AGAIN + BOKIS + USERS) == USERS.rstrip("\n")
    assert users_stack(BOKIS + USERS + AGAIN + BOKIS) == USERS.rstrip("\n"), "a step that is a task of a TaskGroup"
    assert users_stack(f"WorkflowStuck: it ran on\n{BOKIS}{USERS}") == f"WorkflowStuck: it ran on\n{USERS}".rstrip("\n")


def test_an_outcome_keeps_all_but_those_frames() -> None:
    failure = Failure("builtins:ValueError", "no", ["no"], {"a": 1}, Detail(BOKIS + USERS, ["a note"]))
    error = with_users_stack(Outcome(None, failure)).error
    assert error is not None and error.detail is not None
    assert (error.stack, error.detail.notes, error.facts) == (USERS.rstrip("\n"), ["a note"], {"a": 1})
    assert with_users_stack(Outcome(1)) == Outcome(1) and with_users_stack(CANCELLED_OUTCOME) == CANCELLED_OUTCOME


def test_the_error_of_what_is_stuck_names_the_innermost_place_of_its_program() -> None:
    loop = '  File "/usr/lib/python3.11/asyncio/events.py", line 80, in _run\n    self._context.run(self._callback)\n'
    sleeps = '  File "/srv/shop.py", line 8, in ship\n    time.sleep(20)\n'
    client = (
        '  File "/srv/.venv/lib/python3.12/site-packages/requests/api.py", line 9, in get\n    return request(url)\n'
    )
    assert place_of(loop + sleeps + client) == "shop.py:8 in ship, `time.sleep(20)`"
    assert place_of(loop) == "events.py:80 in _run, `self._context.run(self._callback)`" and place_of("no stack") == ""
    assert "an await (at shop.py:8 in ship, `time.sleep(20)`), and" in str(stuck("x", loop + sleeps, 5))
    assert "an await, and" in str(stuck("x", "no stack", 5))
