"""Outcomes of steps, children and workflows, as the log stores them and as a workflow gets them back. Pure.

A workflow is always given what a replay would give it: live, too, a result goes through JSON, and an error is rebuilt from its class,
its arguments and those of its attributes that are JSON. An error becomes `StepFailed` if this program has not imported its class, or if
the class is no `Exception` (SystemExit, KeyboardInterrupt, GeneratorExit) or cannot be raised in a coroutine (StopIteration).

Whatever a body raises can be stored: text that UTF-8 cannot encode is escaped, long text is cut, arguments that are not JSON or too
large become text. The stack trace, notes, cause and the errors of a group are kept beside it, within bounds.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bokiflow.errors import StepFailed
from bokiflow.plain import as_json
from bokilib.codec import Json, check_json
from bokilib.errors import NotEncodable

MESSAGE_CHARS: Final = 4_096
FACTS_BYTES: Final = 65_536
"""Bound of the encoded arguments and attributes of one error."""
STACK_CHARS: Final = 8_192
STACK_FRAMES: Final = 24
NOTES: Final = 8
GROUPED: Final = 16
"""Bound of the errors of a group that are kept."""
DEPTH: Final = 4
"""Bound of the causes and groups inside one another that are kept."""
CANCELLED: Final = "bokiflow.cancellation:WorkflowCancelled"
_REMOTE_STACK: Final = "_bokiflow_stack"
"""Attribute of a rebuilt error: the stack trace of the original."""
_NEVER_RAISED: Final = (StopIteration, StopAsyncIteration)
_encode: Final = msgspec.msgpack.Encoder().encode


class Detail(msgspec.Struct, array_like=True, frozen=True):
    """Everything about an error that people need to find its reason.

    Attributes:
        stack: its stack trace, innermost call last. notes: those added with `add_note`. cause: the error it was raised from.
        errors: the errors of an exception group.
    """

    stack: str = ""
    notes: list[str] = []
    cause: Failure | None = None
    errors: list[Failure] = []


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An error.

    Attributes:
        type: `module:name` of its class. message: for people. args, facts: its arguments and attributes, as far as they are JSON.
        detail: None in records of older programs.
    """

    type: str
    message: str
    args: Any = None
    facts: dict[str, Any] | None = None
    detail: Detail | None = None

    @property
    def stack(self) -> str:
        """The stack trace, innermost call last; "" if none was recorded."""
        return self.detail.stack if self.detail is not None else ""


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """A value, or an error."""

    value: Any = None
    error: Failure | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it is the end of a workflow that was cancelled."""
        return self.error is not None and self.error.type == CANCELLED


CANCELLED_OUTCOME: Final = Outcome(None, Failure(CANCELLED, "the workflow was cancelled"))


def succeeded(value: object) -> Outcome:
    """Raises NotEncodable."""
    return Outcome(as_json(value))


def failed(error: BaseException) -> Outcome:
    """Return an error as the log stores it; never raises."""
    return Outcome(None, _failure(error, DEPTH))


def _failure(error: BaseException, depth: int) -> Failure:
    kind = type(error)
    text = _text(error)
    grouped = error.exceptions[:GROUPED] if isinstance(error, BaseExceptionGroup) else ()
    raised = error.args[:1] if isinstance(error, BaseExceptionGroup) else error.args
    args = [_fact(value) for value in raised]
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_") and _plain(value)}
    if len(_encode((args, facts))) > FACTS_BYTES:
        args, facts = [text], {}
    return Failure(f"{kind.__module__}:{kind.__qualname__}", text, args, facts or None, _detail(error, grouped, depth))


def _detail(error: BaseException, grouped: tuple[BaseException, ...], depth: int) -> Detail:
    cause = error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__
    below = depth - 1
    return Detail(
        _stack(error),
        [_utf8(str(note))[:MESSAGE_CHARS] for note in getattr(error, "__notes__", ())[:NOTES]],
        _failure(cause, below) if cause is not None and below > 0 else None,
        [_failure(one, below) for one in grouped] if below > 0 else [],
    )


def _stack(error: BaseException) -> str:
    """The innermost frames of its stack trace, behind those of the step or child that raised it first."""
    frames = traceback.extract_tb(error.__traceback__)
    here = _utf8("".join(traceback.format_list(frames[-STACK_FRAMES:])))[-STACK_CHARS:]
    there = getattr(error, _REMOTE_STACK, "")
    return f"{there}\nraised again by the workflow:\n{here}"[-STACK_CHARS:] if there and here else there or here


def _text(error: BaseException) -> str:
    try:
        return _utf8(str(error))[:MESSAGE_CHARS]
    except Exception:  # noqa: BLE001 - a user's `__str__` may raise anything; its error still has a type
        return f"{type(error).__qualname__}, whose text cannot be read: its __str__ raised an error"


def _fact(value: object) -> Json:
    try:
        return check_json(value)
    except NotEncodable:
        pass
    try:
        return _utf8(str(value))[:MESSAGE_CHARS]
    except Exception:  # noqa: BLE001 - see `_text`
        return f"a {type(value).__qualname__}"


def _utf8(text: str) -> str:
    """The text with what UTF-8 cannot encode, lone surrogates, escaped."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> bool:
    try:
        check_json(value)
    except NotEncodable:
        return False
    return True


def error_of(failure: Failure, names: Mapping[str, Any] | None = None) -> Exception:
    """Rebuild an error, without calling a user's class, so that nothing else happens.

    Args:
        names: of the module of the function that raised it, where its class is looked for first.
    """
    detail = failure.detail or Detail()
    made = _rebuilt(failure, detail, names or {})
    if made is None:
        made = StepFailed(f"{failure.type}: {failure.message}", type=failure.type)
    if detail.cause is not None:
        made.__cause__ = error_of(detail.cause, names)
    for note in detail.notes:
        made.add_note(note)
    if detail.stack:
        setattr(made, _REMOTE_STACK, detail.stack)
    return made


def _rebuilt(failure: Failure, detail: Detail, names: Mapping[str, Any]) -> Exception | None:
    args = failure.args if isinstance(failure.args, list) else [failure.message]
    if failure.type == "builtins:BaseExceptionGroup" and detail.errors:
        return ExceptionGroup(failure.message, [error_of(one, names) for one in detail.errors])
    kind = _class_of(failure.type, names)
    if kind is None or issubclass(kind, _NEVER_RAISED):
        return None
    try:
        if issubclass(kind, ExceptionGroup):
            made: Exception = kind.__new__(kind, args[0], [error_of(one, names) for one in detail.errors])
        elif kind.__module__ == "builtins":
            made = kind(*args)
        else:
            made = kind.__new__(kind, *args)
            made.args = tuple(args)
        vars(made).update(failure.facts or {})
    except Exception:  # noqa: BLE001 - a class of users that cannot be made so: any error of it
        return None
    return made


def _class_of(name: str, names: Mapping[str, Any]) -> type[Exception] | None:
    """A class of errors that this program has imported already."""
    module, _, qualified = name.partition(":")
    first, *rest = qualified.split(".")
    if names.get("__name__") == module and first in names:
        found = names[first]
    else:
        found = getattr(builtins if module == "builtins" else sys.modules.get(module), first, None)
    for part in rest:
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
