"""How a step, a child or a workflow ended, as it is stored and as it comes back. Pure.

What a workflow is given is always what a replay would give it: live, too, a result goes through JSON, and an error is made anew
from its class, its arguments and what of its attributes is JSON. A class that the reading program has not imported becomes `StepFailed`.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bokiflow.errors import StepFailed
from bokiflow.plain import as_json
from bokilib.codec import Json, check_json
from bokilib.errors import NotEncodable

MESSAGE_CHARS: Final = 4_096
CANCELLED: Final = "bokiflow.cancellation:WorkflowCancelled"


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An error.

    Attributes:
        type: `module:name` of its class. message: for people. args, facts: its arguments and attributes, as far as they are JSON.
    """

    type: str
    message: str
    args: Any = None
    facts: dict[str, Any] | None = None


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
    """An error as it is stored."""
    kind = type(error)
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_") and _plain(value)}
    args: Json = [value if _plain(value) else str(value) for value in error.args]
    text = str(error).encode(errors="replace").decode()[:MESSAGE_CHARS]
    return Outcome(None, Failure(f"{kind.__module__}:{kind.__qualname__}", text, args, facts or None))


def _plain(value: object) -> bool:
    try:
        check_json(value)
    except NotEncodable:
        return False
    return True


def error_of(failure: Failure, names: Mapping[str, Any] | None = None) -> BaseException:
    """The error, made anew: without calling its class, so that nothing else happens.

    Args:
        names: of the module of the function that raised it, where its class is looked for first.
    """
    kind = _class_of(failure.type, names or {})
    if kind is None:
        return StepFailed(f"{failure.type}: {failure.message}", type=failure.type)
    args = failure.args if isinstance(failure.args, list) else [failure.message]
    try:
        made = kind.__new__(kind, *args)
        made.args = tuple(args)
        vars(made).update(failure.facts or {})
    except Exception:  # noqa: BLE001 - a class of users that cannot be made so: any error of it
        return StepFailed(f"{failure.type}: {failure.message}", type=failure.type)
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
