"""Operations, changes and values in the words that people read, on a terminal and on a page. Pure.

What others wrote (names, keys, texts) never moves a cursor or ends a line: what cannot be printed is shown as an escape.
"""

from __future__ import annotations

from typing import Final

from boki_gateway.pages.texts import preview, printable
from bokistore.model.operations import AnyOperation, Change, Inc, MaybeJson, Merge, Missing, Push, Set

WHOLE_OBJECT: Final = "(object)"
"""What the empty path is called."""


def operation_text(operation: AnyOperation) -> str:
    """Return an operation as one would call it: inc n 5."""
    words = [str(operation.__struct_config__.tag), printable(operation.path) or WHOLE_OBJECT]
    if isinstance(operation, (Set, Push)):
        words.append(preview(operation.value))
    elif isinstance(operation, Inc):
        words.append(str(operation.delta))
    elif isinstance(operation, Merge):
        words.append(preview(operation.patch))
    if isinstance(operation, Push) and operation.limit is not None:
        words.append(f"limit {operation.limit}")
    return " ".join(words)


def sign_of(change: Change) -> str:
    """Return the sign of a change: + added, - removed, ~ replaced."""
    return "+" if isinstance(change.before, Missing) else "-" if isinstance(change.after, Missing) else "~"


def change_text(change: Change) -> str:
    """Return a change on one line."""
    path = printable(change.path) or WHOLE_OBJECT
    values = [preview(value) for value in (change.before, change.after) if not isinstance(value, Missing)]
    return f"{sign_of(change)} {path}  {' → '.join(values)}"


def change_object(change: Change) -> dict[str, object]:
    """Return a change as JSON, without `before` or `after` where there is nothing."""
    facts: dict[str, object] = {"path": change.path}
    sides: tuple[tuple[str, MaybeJson], ...] = (("before", change.before), ("after", change.after))
    return facts | {name: value for name, value in sides if not isinstance(value, Missing)}
