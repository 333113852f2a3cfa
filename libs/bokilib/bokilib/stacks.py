"""Values, errors and stack traces of users' code as text, without the frames of Boki itself, for errors, log lines and records. Pure.

A frame belongs to Boki if its file is in a package of Boki, wherever that is installed. A trace without other frames is kept whole,
since the fault may be in Boki.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from typing import Any, Final

from boki_common.interruption import interrupted

ERROR_CHARACTERS: Final = 2_000
SHOWN_CHARACTERS: Final = 80
STACK_CHARACTERS: Final = 8_000
STACK_FRAMES: Final = 20
_FRAME: Final = '  File "'
_OURS: Final = re.compile(
    r"/(?:(?:bokiflow|bokilib|bokistore|bokiqueue|bokirsm|boki_common)|(?:site-packages|logbook)/boki)/[^/]*(?:/[^/]*)*$"
)


def is_ours(file: str) -> bool:
    """Return whether a source file belongs to Boki."""
    return _OURS.search(file.replace("\\", "/")) is not None


def without_our_frames(stack: str) -> str:
    """Return a formatted stack trace without the frames of Boki, or unchanged if it has no others."""
    kept: list[str] = []
    ours = False
    for line in stack.rstrip("\n").split("\n"):
        if line.startswith(_FRAME):
            ours = is_ours(line.removeprefix(_FRAME).partition('"')[0])
        elif not line.startswith("    "):
            ours = False  # a heading between two stacks
        if not ours:
            kept.append(line)
    if not any(line.startswith(_FRAME) for line in kept):
        return stack
    return "\n".join(kept).lstrip("\n")


def users_traceback(error: BaseException, frames: int) -> str:
    """Return the traceback of an error, its causes and the errors of its group, as Python prints it, without the frames of Boki.

    Args:
        frames: the most frames of one error: its first one and the innermost ones.
    """
    found = traceback.TracebackException.from_exception(error, lookup_lines=False)
    errors = _errors_in(found)
    users = [[frame for frame in one.stack if not is_ours(frame.filename)] for one in errors]
    if any(users):
        for one, of_users in zip(errors, users, strict=True):
            one.stack = traceback.StackSummary.from_list(of_users)
    for one in errors:
        if len(one.stack) > frames:
            one.stack = traceback.StackSummary.from_list([one.stack[0], *one.stack[1 - frames :]])
    return "".join(found.format())


def _errors_in(found: traceback.TracebackException) -> list[traceback.TracebackException]:
    """Return an error and the errors that its traceback includes: causes, contexts and members of its group."""
    errors, waiting = [], [found]
    while waiting:
        one = waiting.pop()
        errors.append(one)
        waiting.extend(
            other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other is not None
        )
    return errors


def frames_of(awaited: Any, most: int) -> list[traceback.FrameSummary]:
    """Return the outermost `most` frames of a coroutine that waits or runs, the innermost last."""
    frames: list[traceback.FrameSummary] = []
    while awaited is not None and len(frames) < most:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            frames.append(traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return frames


def users_frames(frames: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Return frames without those of Boki, or all of them if there are no others."""
    return [frame for frame in frames if not is_ours(frame.filename)] or list(frames)


def described(error: BaseException) -> str:
    """Return the type and text of an error. Raises KeyboardInterrupt: a person interrupts the program."""
    try:
        text = repr(error)
    except BaseException as fault:  # a user's class may raise anything, SystemExit too
        if interrupted(fault):
            raise
        text = f"{type(error).__name__}, which cannot be shown"
    return printable(text, ERROR_CHARACTERS)


def shown(value: object, most: int = SHOWN_CHARACTERS) -> str:
    """Return `repr(value)` for the text of an error, or words in its place. It says how long the value is if it is cut.

    Raises KeyboardInterrupt, as `described`.
    """
    try:
        text = repr(value)
    except BaseException as fault:  # as in `described`; and Python refuses to write integers of many thousand digits
        if interrupted(fault):
            raise
        return f"a value of type {type(value).__qualname__}, which cannot be shown"
    if not text.isascii():
        text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[:most]}… (cut: {len(text):,} characters)"


def text_of(error: BaseException) -> str:
    """Return `str(error)`, or words in its place. Raises KeyboardInterrupt: a person interrupts the program."""
    try:
        return str(error)
    except BaseException as fault:  # as in `described`
        if interrupted(fault):
            raise
        return f"{type(error).__qualname__}, whose text cannot be read: its __str__ raised an error"


def stack_of(error: BaseException) -> str:
    """Return the stack of an error with its causes: the frames of the user's code. Raises KeyboardInterrupt, as `described`."""
    try:
        text = users_traceback(error, STACK_FRAMES)
    except BaseException as fault:  # as in `described`
        if interrupted(fault):
            raise
        text = "".join(traceback.format_tb(error.__traceback__, limit=-STACK_FRAMES))
    return printable(text, STACK_CHARACTERS)


def printable(text: str, most: int) -> str:
    """Return a text without lone surrogates, and without its middle if it is longer than `most`."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {len(text) - most} characters … {text[-(most // 2) :]}"
    return text.encode(errors="backslashreplace").decode()
