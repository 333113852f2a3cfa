"""Errors of handlers as text, for log lines and dead letters: bounded and printable for every error that users raise. Pure."""

from __future__ import annotations

import traceback
from typing import Any, Final, NamedTuple

from bokilib.stacks import STACK_CHARACTERS, STACK_FRAMES, described, frames_of, printable, stack_of, users_frames

WAITING_FRAMES: Final = 1_000
LARGE_BYTES: Final = 256 * 1024
"""A dead letter with a body of this size has no room for a stack in its record."""
LARGE_CHARACTERS: Final = 200


class Failure(NamedTuple):
    """The error of the last attempt.

    Attributes:
        error: its type and text, "" if there was none.
        stack: its stack with causes, "" if there was none.
    """

    error: str = ""
    stack: str = ""


def failure_of(error: BaseException | None, body_bytes: int) -> Failure:
    """Return the failure that a dead letter with a body of `body_bytes` bytes names."""
    if error is None:
        return Failure()
    if body_bytes >= LARGE_BYTES:
        return Failure(printable(described(error), LARGE_CHARACTERS))
    return Failure(described(error), stack_of(error))


def stack_of_waiting(coroutine: Any) -> str:
    """Return the frames of the user's code in which a coroutine waits, the innermost call last."""
    frames = users_frames(frames_of(coroutine, WAITING_FRAMES))
    return printable("".join(traceback.format_list(frames[-STACK_FRAMES:])), STACK_CHARACTERS)
