"""Stack traces of users' errors without the frames of Boki's own code. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from bokiflow.errors import WorkflowStuck
from bokiflow.model.outcomes import AGAIN, Outcome
from bokilib.stacks import without_our_frames

_LIBRARY: Final = re.compile(r"/(?:site-packages|dist-packages|lib/python3[^/]*)/|^<")
_PLACE: Final = re.compile(r'^  File "([^"]*)", line (\d+), in (.*)\n(?:    (.*))?', re.MULTILINE)


def users_stack(stack: str) -> str:
    """Return a stack trace without the frames of Boki's own code, or unchanged if it has no others."""
    return without_our_frames(stack).removeprefix(AGAIN).lstrip("\n")


def with_users_stack(outcome: Outcome) -> Outcome:
    """Return an outcome with the stack trace of its error reduced by `users_stack`."""
    error = outcome.error
    if error is None or error.detail is None:
        return outcome
    detail = msgspec.structs.replace(error.detail, stack=users_stack(error.detail.stack))
    return Outcome(outcome.value, msgspec.structs.replace(error, detail=detail))


def place_of(stack: str) -> str:
    """Return the innermost line of a program's own code in a stack trace: "shop.py:7 in ship, `time.sleep(20)`"; "" if there is none."""
    places = _PLACE.findall(users_stack(stack).replace("\\", "/") + "\n")
    own = [place for place in places if not _LIBRARY.search(place[0])] or places
    if not own:
        return ""
    file, line, function, source = own[-1]
    at = f"{file.rpartition('/')[2]}:{line} in {function}"
    return f"{at}, `{source.strip()}`" if source else at


def stuck(id: str, stack: str, after_s: float) -> WorkflowStuck:
    """Return the error of a workflow whose code blocked the event loop."""
    place = place_of(stack)
    return WorkflowStuck(
        f"workflow {id!r} ran for {after_s:g} s without an await{f' (at {place})' if place else ''}, and kept its worker from running "
        "others: move slow or blocking code (time.sleep, a long loop, a blocking client) into a step; then resume or cancel the workflow",
        id=id,
        stack=stack,
    )
