"""Stack traces of users' errors without the frames of Boki's own code. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from bokiflow.errors import WorkflowStuck
from bokiflow.model.outcomes import AGAIN, Detail, Failure, Outcome
from bokilib.stacks import without_our_frames

_LIBRARY: Final = re.compile(r"/(?:site-packages|dist-packages|lib/python3[^/]*)/|^<")
_PLACE: Final = re.compile(r'^  File "([^"]*)", line (\d+), in (.*)\n(?:    (.*))?', re.MULTILINE)


def users_stack(stack: str) -> str:
    """Return a stack trace without the frames of Boki's own code, or unchanged if it has no others."""
    users = without_our_frames(stack).removeprefix(AGAIN).lstrip("\n")
    return users.removesuffix(AGAIN).rstrip("\n") if users.endswith(AGAIN) else users


def with_users_stack(outcome: Outcome) -> Outcome:
    """Return an outcome with the stack traces of its error, of its causes and of the errors of a group reduced by `users_stack`."""
    return outcome if outcome.error is None else Outcome(outcome.value, _reduced(outcome.error))


def _reduced(error: Failure) -> Failure:
    detail = error.detail
    if detail is None:
        return error
    cause = None if detail.cause is None else _reduced(detail.cause)
    reduced = Detail(users_stack(detail.stack), detail.notes, cause, [_reduced(one) for one in detail.errors])
    return msgspec.structs.replace(error, detail=reduced)


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
