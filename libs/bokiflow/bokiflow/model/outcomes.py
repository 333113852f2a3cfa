"""Arguments and outcomes of steps, children and workflows: their format in the log, and the errors that are rebuilt from it. Pure.

A workflow gets the same outcome live and in a replay: a live result also passes through JSON, and an error is rebuilt from its class, its
arguments and its attributes, as far as they are JSON.

A class is looked up by its name, and only in modules in which the name led to this very class when the error was recorded
(`Failure.known_by`): its own, that of the function that raised the error, that of the workflow. A different class of that name is not used.
- A class that no name led to (in a function's `<locals>`, or made by `type(...)`) becomes `StepFailed`, live and in each replay. So does a
  class that is no `Exception` (SystemExit, KeyboardInterrupt, GeneratorExit) or cannot be raised in a coroutine (StopIteration).
- A class that had a name then and cannot be found now was moved or deleted. `missing_class` finds such an error, since the workflow must
  not continue with a different one. Programs that only read outcomes get `StepFailed`.
- Records of older programs do not have `known_by`. Their class is looked up in its own module only, and becomes `StepFailed` if the module
  does not have it, as in those programs.

Every error can be stored: text that UTF-8 cannot encode is escaped, long text is cut, and arguments that are not JSON or too large become
text. The stack trace, notes, cause and grouped errors are kept beside it, within bounds.

Arguments and results are JSON by `bokilib.records.codec`, with tuples as lists, since functions take and return several values. Two calls
are compared by the digests of their arguments. Arguments of a workflow are JSON and always have a digest. Arguments of a step may be any
objects (a client, an open file). They have a digest only if they are JSON; the step's key, which is its place in the code, identifies the
call anyway.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
import xxhash

from boki_common.interruption import interrupted
from bokiflow.errors import NonDeterminism, StepFailed
from bokilib.errors import NotEncodable
from bokilib.records.codec import Json, check_json, checked_json, plain_of
from bokilib.stacks import text_of


def as_json(value: object) -> Json:
    """Return a value of a user's type as JSON. Raises NotEncodable."""
    if type(value) in (str, int, bool, type(None)):
        return check_json(value)
    return checked_json(plain_of(value))


V = TypeVar("V")
_encoder: Final = msgspec.json.Encoder(order="sorted")
NONE: Final = ""


def digest(value: Json) -> str:
    """Return the digest of JSON, which ignores the order of keys."""
    return xxhash.xxh3_64_hexdigest(_encoder.encode(value))


def digest_of_call(args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Return the digest of a step's arguments; "" if they are not JSON."""
    try:
        return digest(as_json([list(args), dict(options)]))
    except NotEncodable:
        return NONE


def copied(value: V) -> V:
    """Copy an argument of a step, so that the step and the workflow do not see each other's later changes.

    Containers, dataclasses, Structs and models are copied; other objects (a client, an open file) are shared.
    """
    if isinstance(value, list | tuple | set | dict) and type(value) in (list, tuple, set, dict):
        if isinstance(value, dict):
            return cast(V, {copied(key): copied(item) for key, item in value.items()})
        return cast(V, type(value)(copied(item) for item in value))
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value) or hasattr(type(value), "model_dump"):
        try:
            return copy.deepcopy(value)
        except Exception:  # noqa: BLE001 - it contains an object that cannot be copied, and is shared like that object
            return value
    return value


MESSAGE_CHARS: Final = 4_096
FACTS_BYTES: Final = 65_536
"""Bound of the encoded arguments and attributes of one error."""
STACK_CHARS: Final = 8_192
STACK_FRAMES: Final = 24
NOTES: Final = 8
GROUPED: Final = 16
"""The most errors of a group that are kept."""
DEPTH: Final = 4
"""The most levels of causes and groups that are kept."""
NAMED: Final = 3
"""The most errors of a group that `Failure.text` names."""
BESIDE_CHARS: Final = 512
"""The most characters of `Failure.text` beside the message."""
CANCELLED: Final = "bokiflow.errors:WorkflowCancelled"
INTERRUPTED: Final = "bokiflow.errors:StepInterrupted"
AGAIN: Final = "raised again by the workflow:"
"""Text between the stack trace of a step or child and that of the workflow."""
_REMOTE_STACK: Final = "_bokiflow_stack"
"""Attribute of a rebuilt error: the stack trace of the original; "" if none was recorded."""
THE_ARGUMENTS: Final = "the arguments"
_STOPPED: Final = "asyncio.exceptions:CancelledError"
_NEVER_RAISED: Final = (StopIteration, StopAsyncIteration)
_MAIN: Final = "__main__"
UNRECORDED: Final = 0
"""`Failure.known_by` in records of older programs."""
NOWHERE: Final = 1
"""The name of the class led to it neither in its own module nor in that of the function that raised it.

`Failure.known_by` is this or one of the next two numbers, plus flags.
"""
IN_ITS_MODULE: Final = 2
"""The class had its name in its own module, and not in that of the function."""
AT_THE_FUNCTION: Final = 3
"""The class had its name in the module of the function that raised it, and is looked up in the function's current module."""
AT_THE_WORKFLOW: Final = 4
"""Flag: the class had its name in the module of the workflow that ran the function."""
NOT_IN_ITS_MODULE: Final = 8
"""Flag beside AT_THE_FUNCTION: its own module had no class, or a different class, of that name."""
_FLAGS: Final = AT_THE_WORKFLOW | NOT_IN_ITS_MODULE
Names: TypeAlias = Mapping[str, Any]
"""Globals of the module that a function is defined in."""
_encode: Final = msgspec.msgpack.Encoder().encode


class Detail(msgspec.Struct, array_like=True, frozen=True):
    """The details of an error for people: its stack trace (innermost call last), notes, cause and, of a group, errors."""

    stack: str = ""
    notes: list[str] = []
    cause: Failure | None = None
    errors: list[Failure] = []


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An error.

    Attributes:
        type: `module:name` of its class.
        args: its arguments, as JSON or text.
        facts: those of its attributes that are JSON.
        detail: its details; None in records of older programs.
        known_by: the modules in which its name led to its class when it was recorded.
    """

    type: str
    message: str
    args: Any = None
    facts: dict[str, Any] | None = None
    detail: Detail | None = None
    known_by: int = UNRECORDED

    @property
    def stack(self) -> str:
        """The stack trace, innermost call last; "" if none was recorded."""
        return self.detail.stack if self.detail is not None else ""

    @property
    def cause(self) -> Failure | None:
        """The error that it was raised from, or while that was handled; None if there is none."""
        return self.detail.cause if self.detail is not None else None

    @property
    def errors(self) -> Sequence[Failure]:
        """The errors of a group, the first 16 at most; empty for any other error."""
        return self.detail.errors if self.detail is not None else ()

    @property
    def text(self) -> str:
        """The message, and in brackets the errors of a group and the chain of causes, shortened."""
        return self.message + beside(self)


def beside(failure: Failure) -> str:
    """Return the errors of a group and the causes of an error as text to follow its message; "" if there are none.

    The cause of a time-out is the cancellation that it made, which tells nothing: it is left out unless it has a message.
    """
    text = ""
    if failure.errors:
        more = [f"{len(failure.errors) - NAMED} more"] if len(failure.errors) > NAMED else []
        text += f" [{'; '.join([*map(_in_brackets, failure.errors[:NAMED]), *more])}]"
    cause = failure.cause
    if cause is not None and (cause.message or cause.type != _STOPPED):
        text += f" (cause: {_in_brackets(cause)})"
    return text if len(text) <= BESIDE_CHARS else f"{text[: BESIDE_CHARS - 1]}…"


def _in_brackets(failure: Failure) -> str:
    name = failure.type.rpartition(":")[2]
    return f"{name}: {failure.message}{beside(failure)}" if failure.message else f"{name}{beside(failure)}"


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """A value, or an error."""

    value: Any = None
    error: Failure | None = None

    @property
    def cancelled(self) -> bool:
        """True for a workflow that was cancelled."""
        return self.error is not None and self.error.type == CANCELLED

    @property
    def interrupted(self) -> bool:
        """True for a step that runs at most once, and whose worker was lost while it ran."""
        return self.error is not None and self.error.type == INTERRUPTED


_THE_WORKFLOW: Final = "the workflow "
CANCELLED_OUTCOME: Final = Outcome(None, Failure(CANCELLED, f"{_THE_WORKFLOW}was cancelled"))


def cancelled_while_blocked(blocked: str) -> Outcome:
    """Return the outcome of a workflow that is cancelled while it is blocked by an error of class `blocked`, and ends without its code."""
    text = f"{_THE_WORKFLOW}was cancelled while blocked by {blocked}: its `except` and `finally` did not run"
    return Outcome(None, Failure(CANCELLED, text))


def terminated(reason: str) -> Outcome:
    """Return the outcome of a workflow that is terminated: it ends without its code."""
    why = f" ({_utf8(reason)[:MESSAGE_CHARS]})" if reason else ""
    return Outcome(
        None, Failure(CANCELLED, f"{_THE_WORKFLOW}was terminated{why}: its `except` and `finally` did not run")
    )


def cancellation_text(whose: str, outcome: Outcome) -> str:
    """Return the text of the error for callers that wait for a cancelled workflow."""
    text = "" if outcome.error is None else outcome.error.message.removeprefix(_THE_WORKFLOW)
    return f"{whose} {text or 'was cancelled'}"


def succeeded(value: object) -> Outcome:
    """Return the outcome of a value. Raises NotEncodable."""
    return Outcome(as_json(value))


def failed(error: BaseException, *places: Names) -> Outcome:
    """Return the outcome of an error, whatever the error's own code raises meanwhile. Raises KeyboardInterrupt of a person alone.

    Args:
        places: the globals of the function that raised it, and of the workflow that called the function.
    """
    try:
        return Outcome(None, _failure(error, DEPTH, places))
    except BaseException as fault:  # the attributes of a user's error may raise anything, SystemExit too
        if interrupted(fault):
            raise
        kind, detail = type(error), Detail(stack_of(error))
        return Outcome(None, Failure(_type_of(kind), _text(error), None, None, detail, _known_by(kind, places)))


def _failure(error: BaseException, depth: int, places: tuple[Names, ...]) -> Failure:
    if isinstance(error, RecordedFailure):
        return error.failure
    kind = type(error)
    text = _text(error)
    grouped = error.exceptions[:GROUPED] if isinstance(error, BaseExceptionGroup) else ()
    raised = error.args[:1] if isinstance(error, BaseExceptionGroup) else error.args
    args = [_fact(value) for value in raised]
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_") and _plain(value)}
    if len(_encode((args, facts))) > FACTS_BYTES:
        args, facts = [text], {}
    detail = _detail(error, grouped, depth, places)
    return Failure(_type_of(kind), text, args, facts or None, detail, _known_by(kind, places))


def _type_of(kind: type[BaseException]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _known_by(kind: type[BaseException], places: tuple[Names, ...]) -> int:
    in_its_module = _exactly(_type_of(kind), places) is kind
    at_function, at_workflow = (_named(names, kind.__qualname__) is kind for names in (*places, {}, {})[:2])
    flags = AT_THE_WORKFLOW if at_workflow else 0
    if at_function:
        return AT_THE_FUNCTION | flags | (0 if in_its_module else NOT_IN_ITS_MODULE)
    return (IN_ITS_MODULE if in_its_module else NOWHERE) | flags


def _detail(error: BaseException, grouped: tuple[BaseException, ...], depth: int, places: tuple[Names, ...]) -> Detail:
    cause = error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__
    below = depth - 1
    return Detail(
        stack_of(error),
        [_utf8(str(note))[:MESSAGE_CHARS] for note in vars(error).get("__notes__", ())[:NOTES]],
        _failure(cause, below, places) if cause is not None and below > 0 else None,
        [_failure(one, below, places) for one in grouped] if below > 0 else [],
    )


def stack_of(error: BaseException) -> str:
    """Return the innermost frames of an error's stack trace, after those of the step or child that raised it first."""
    frames = traceback.extract_tb(error.__traceback__)
    here = _utf8("".join(traceback.format_list(frames[-STACK_FRAMES:])))[-STACK_CHARS:]
    there = vars(error).get(_REMOTE_STACK, "")
    return f"{there}\n{AGAIN}\n{here}"[-STACK_CHARS:] if there and here else there or here


def _text(error: BaseException) -> str:
    return _utf8(text_of(error))[:MESSAGE_CHARS]


def _fact(value: object) -> Json:
    try:
        return check_json(value)
    except NotEncodable:
        pass
    try:
        return _utf8(str(value))[:MESSAGE_CHARS]
    except BaseException as fault:  # as in `failed`
        if interrupted(fault):
            raise
        return f"a {type(value).__qualname__}"


def _utf8(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot encode, escaped."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> bool:
    try:
        check_json(value)
    except NotEncodable:
        return False
    return True


def missing_class(failure: Failure, *places: Names) -> Failure | None:
    """Return the error whose class had a name when it was recorded and cannot be found by this program; None if there is none.

    The error and the errors of its group count, since `except` and `except*` select by their classes; its cause does not. A module that is
    not imported yet is imported, since the step that raised the error may import it only while it runs.

    Args:
        places: the globals of the function that raised it, and of the workflow that gets it.
    """
    detail = failure.detail or Detail()
    if detail.cause is not None:
        missing_class(detail.cause, *places)  # for the import only, so that `error_of` finds its class
    found = _find(failure, places, may_import=True)
    if found is None and failure.known_by not in (UNRECORDED, NOWHERE):
        return failure
    return next((lost for one in detail.errors if (lost := missing_class(one, *places)) is not None), None)


def lost_class(lost: Failure, what: str, id: str, name: str, *places: Names) -> NonDeterminism:
    """Return the error of a workflow that would get an error whose class this program cannot find.

    Args:
        lost: the error that `missing_class` returned.
        what: the step or child that raised it.
    """
    module, _, qualified = lost.type.partition(":")
    first = qualified.partition(".")[0]
    had = " or ".join([f"in {module}", *_roles(lost.known_by)])
    found = " and ".join(_type_of(kind) for kind in _candidates(lost, places, may_import=False))
    if found:
        why = f"may be either of two classes of this program, {found}: rename one of them, or let both names lead to one class"
    else:
        why = f"this program cannot find: restore the class, or define its old name {had} (`from … import {first}`, `{first} = NewName`)"
    return NonDeterminism(
        f"workflow {id!r} ({name}): the history has the error {lost.type} of {what}, which {why}",
        id=id,
        expected=f"the class {qualified} {had}",
        found=found or "no class of that name there",
    )


def unfit_value(fault: Exception, what: str, id: str, name: str) -> NonDeterminism:
    """Return the error of a workflow whose history has a value that does not fit the types of this program.

    Args:
        fault: the error of the conversion.
        what: the value, such as "the arguments".
    """
    wrong = "; if the call was wrong, terminate the workflow and start another" if what == THE_ARGUMENTS else ""
    return NonDeterminism(
        f"workflow {id!r} ({name}): {what} in its history cannot be given to this code: {fault}; restore the code that it was started for, "
        f"or change the parameters or types so that they accept both{wrong}",
        id=id,
        expected=f"{what} of the types that this code names",
        found=str(fault),
    )


def _roles(known_by: int) -> list[str]:
    at_function = ["in the module of the step"] if known_by & ~_FLAGS == AT_THE_FUNCTION else []
    return at_function + (["in the module of the workflow"] if known_by & AT_THE_WORKFLOW else [])


def error_of(failure: Failure, *places: Names) -> Exception:
    """Rebuild an error without side effects: no user's class is called, and no module is imported.

    Args:
        places: the globals of the function that raised it, and of the workflow that gets it.
    """
    detail = failure.detail or Detail()
    made = _rebuilt(failure, detail, places)
    if made is None:
        made = StepFailed(f"{failure.type}: {failure.message}", type=failure.type)
    if detail.cause is not None:
        made.__cause__ = error_of(detail.cause, *places)
    for note in detail.notes:
        made.add_note(note)
    setattr(made, _REMOTE_STACK, detail.stack)
    return made


class RecordedFailure(Exception):
    """An error that a step's body got in stored form. It is recorded unchanged, even if this program cannot find its class."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.message}")
        self.failure = failure


def is_rebuilt(error: BaseException) -> bool:
    """Return True if an error is the outcome of a step, a child or a transaction."""
    return _REMOTE_STACK in vars(error)


def _rebuilt(failure: Failure, detail: Detail, places: tuple[Names, ...]) -> Exception | None:
    args = failure.args if isinstance(failure.args, list) else [failure.message]
    if failure.type == "builtins:BaseExceptionGroup" and detail.errors:
        return ExceptionGroup(failure.message, [error_of(one, *places) for one in detail.errors])
    kind = _find(failure, places)
    if kind is None or not issubclass(kind, Exception) or issubclass(kind, _NEVER_RAISED):
        return None
    try:
        if issubclass(kind, ExceptionGroup):
            made: Exception = kind.__new__(kind, args[0], [error_of(one, *places) for one in detail.errors])
        elif kind.__module__ == "builtins":
            made = kind(*args)
        else:
            made = kind.__new__(kind, *args)
            made.args = tuple(args)
        vars(made).update(failure.facts or {})
    except Exception:  # noqa: BLE001 - a user's class may raise any error when it is made in this way
        return None
    return made


def _find(failure: Failure, places: tuple[Names, ...], *, may_import: bool = False) -> type[BaseException] | None:
    found = _candidates(failure, places, may_import=may_import)
    return found[0] if len(found) == 1 else None


def _candidates(failure: Failure, places: tuple[Names, ...], *, may_import: bool) -> list[type[BaseException]]:
    """Return the classes that may be an error's, by the modules in which its name led to it when recorded. Of two, neither is used.

    - The class of that name in its own module is a candidate.
    - So are the classes that its name leads to at the function and at the workflow, if it led to the class there when it was recorded: the
      class may have moved, and its own module may have a copy that is not raised any more.
    - `__main__` is a different module in each program. It counts as the module of a class only if neither the function nor the workflow
      knew the class. It is never imported, nor is the main module under its own name, which would be a second copy.
    """
    known_by, (module, _, name) = failure.known_by, failure.type.partition(":")
    at_function, at_workflow = known_by & ~_FLAGS == AT_THE_FUNCTION, bool(known_by & AT_THE_WORKFLOW)
    in_its_module = known_by & ~_FLAGS != NOWHERE and not known_by & NOT_IN_ITS_MODULE
    first = None
    second = _named(places[0] if places else {}, name) if at_function else None
    if in_its_module and not (module == _MAIN and (at_function or at_workflow)):
        first = _exactly(failure.type, places)
        if first is None and may_import and _imported(module):
            first = _exactly(failure.type, places)
    third = _named(places[1], name) if at_workflow and len(places) > 1 else None
    return list(dict.fromkeys(kind for kind in (first, second, third) if kind is not None))


def _exactly(known: str, places: tuple[Names, ...]) -> type[BaseException] | None:
    """Return the class `module:name` if that module is imported already, possibly as the program's main module."""
    module, _, name = known.partition(":")
    for names in places:
        if names.get("__name__") == module and (found := _named(names, name)) is not None:
            return found
    first, _, rest = name.partition(".")
    imported = sys.modules.get(module)
    if imported is None and module == _name_of_main():
        imported = sys.modules.get(_MAIN)
    return _class_in(getattr(imported, first, None), rest)


def _named(names: Names, name: str) -> type[BaseException] | None:
    first, _, rest = name.partition(".")
    return _class_in(names.get(first), rest)


def _class_in(found: object, rest: str) -> type[BaseException] | None:
    for part in rest.split(".") if rest else ():
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _imported(module: str) -> bool:
    """Import a module, and return True if that succeeded."""
    if module in ("", _MAIN, _name_of_main()):
        return False
    try:
        importlib.import_module(module)
    except (Exception, SystemExit):  # noqa: BLE001 - an import may raise any error; then its classes cannot be found
        return False
    return True


def _name_of_main() -> str:
    """Return the name by which other programs import the main module of this one; "" if it has none."""
    main = sys.modules.get(_MAIN)
    spec = getattr(main, "__spec__", None)
    return spec.name if spec is not None else _module_of(getattr(main, "__file__", None) or "")


def _module_of(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
