"""Errors of handlers as text, for log lines and dead letters: bounded and printable for every error that users raise. Pure."""

from __future__ import annotations

import traceback
from typing import Any, Final, NamedTuple

from bokilib.stacks import frames_of, users_frames, users_traceback

ERROR_CHARACTERS: Final = 2_000
STACK_CHARACTERS: Final = 8_000
STACK_FRAMES: Final = 20
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


def described(error: BaseException) -> str:
    """Return the type and text of an error."""
    try:
        text = repr(error)
    except Exception:  # noqa: BLE001 - an error of users that cannot be shown
        text = f"{type(error).__name__}, which cannot be shown"
    return printable(text, ERROR_CHARACTERS)


def stack_of(error: BaseException) -> str:
    """Return the stack of an error with its causes: the frames of the user's code."""
    try:
        text = users_traceback(error, STACK_FRAMES)
    except Exception:  # noqa: BLE001 - an error of users that cannot be shown
        text = "".join(traceback.format_tb(error.__traceback__, limit=-STACK_FRAMES))
    return printable(text, STACK_CHARACTERS)


def stack_of_waiting(coroutine: Any) -> str:
    """Return the frames of the user's code in which a coroutine waits, the innermost call last."""
    frames = users_frames(frames_of(coroutine, WAITING_FRAMES))
    return printable("".join(traceback.format_list(frames[-STACK_FRAMES:])), STACK_CHARACTERS)


def printable(text: str, most: int) -> str:
    """Return a text without lone surrogates, and without its middle if it is longer than `most`."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {len(text) - most} characters … {text[-(most // 2) :]}"
    return text.encode(errors="backslashreplace").decode()
