"""Stack traces of users' errors, as people read them: without the frames of Boki's own code. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from bokiflow.outcomes import AGAIN, Outcome

_FRAME: Final = '  File "'
_OURS: Final = re.compile(
    r'^  File "[^"]*/(?:(?:bokiflow|bokilib|bokistore|bokiqueue|boki_common)|(?:site-packages|logbook)/boki)/[^"]*"'
)
"""Frames of files in the packages of Boki, wherever they are installed."""


def users_stack(stack: str) -> str:
    """Return a stack trace without the frames of Boki's own code; with all of them if there are no others."""
    kept: list[str] = []
    ours = False
    for line in stack.rstrip("\n").split("\n"):
        if line.startswith(_FRAME):
            ours = _OURS.search(line.replace("\\", "/")) is not None
        elif not line.startswith("    "):
            ours = False  # a heading between two stacks
        if not ours:
            kept.append(line)
    if not any(line.startswith(_FRAME) for line in kept):
        return stack
    return "\n".join(kept).lstrip("\n").removeprefix(AGAIN).lstrip("\n")


def with_users_stack(outcome: Outcome) -> Outcome:
    """Return an outcome whose error has the stack trace that `users_stack` leaves of it."""
    error = outcome.error
    if error is None or error.detail is None:
        return outcome
    detail = msgspec.structs.replace(error.detail, stack=users_stack(error.detail.stack))
    return Outcome(outcome.value, msgspec.structs.replace(error, detail=detail))
