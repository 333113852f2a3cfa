"""Checks of arguments that programs give to libraries. Pure.

A library checks an argument before it builds a record of it: a value of another type would be encoded, and no reader could decode the
record, and text that UTF-8 cannot encode would fail the record of several callers.
"""

from __future__ import annotations

from math import isfinite

from boki_common.errors import InvalidArgument
from bokilib.stacks import shown


def check_text(what: str, found: object) -> str:
    """Return an argument that is text. An event with another type could not be read again.

    Raises:
        InvalidArgument: it is not.
    """
    if not isinstance(found, str):
        raise InvalidArgument(
            f"expected {what} that is text (str), found {shown(found)} ({type(found).__name__})", found=found
        )
    try:
        found.encode()
    except UnicodeEncodeError as fault:
        raise InvalidArgument(
            f"expected {what} that UTF-8 can encode, found {shown(found)}", found=shown(found)
        ) from fault
    return found


def check_number(what: str, found: object) -> float:
    """Return an argument that is a finite number.

    Raises:
        InvalidArgument: it is of another type (a bool too), infinite, or no number.
    """
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InvalidArgument(
            f"expected {what} that is a number (int or float), found {shown(found)} ({type(found).__name__})",
            found=found,
        )
    try:
        finite = isfinite(found)
    except OverflowError:  # an int beyond all floats
        finite = False
    if not finite:
        raise InvalidArgument(f"expected {what} that is a finite number, found {shown(found)}", found=shown(found))
    return found
