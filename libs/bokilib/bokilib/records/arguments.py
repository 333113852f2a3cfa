"""Checks of arguments that programs give to libraries. Pure.

A library checks an argument before it builds a record of it: a value of another type would be encoded, and no reader could decode the
record, and text that UTF-8 cannot encode would fail the record of several callers.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from boki_common.errors import InvalidArgument
from bokilib.stacks import shown

LEASE_MOST_S: Final = 3_600.0
"""The longest lease of a member. The work of a member that died waits for as long, so a lease in milliseconds is refused."""
SECONDS_MOST: Final = 1e10
NUMBER_MOST: Final = 2**63 - 1
NAME_CHARS: Final = 1_024


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


def check_lease(lease_s: float, most_s: float = LEASE_MOST_S) -> float:
    """Return a lease in seconds.

    Raises:
        InvalidArgument: it is no number, not above 0, or more than `most_s`.
    """
    if not 0 < check_number("a lease in seconds", lease_s) <= most_s:
        raise InvalidArgument(
            f"expected a lease of more than 0 and up to {most_s:.0f} seconds, found {lease_s!r}", found=lease_s
        )
    return lease_s


def check_seconds(what: str, found: float, *, above_0: bool = False) -> float:
    """Return a time in seconds.

    Args:
        what: the option, as "retention_s=".
        found: the argument.
        above_0: refuse 0.

    Raises:
        InvalidArgument: it is no finite number, negative, or more than `SECONDS_MOST`.
    """
    if not 0 <= check_number(f"{what} in seconds", found) <= SECONDS_MOST or (above_0 and not found):
        least = "more than 0" if above_0 else "0"
        raise InvalidArgument(f"expected {what} of {least} to {SECONDS_MOST:.0f} seconds, found {found!r}", found=found)
    return found


def check_whole(what: str, found: int, least: int = 0, most: int = NUMBER_MOST) -> int:
    """Return a whole number.

    Raises:
        InvalidArgument: it is no int (a bool is none), or not between `least` and `most`.
    """
    if type(found) is not int or not least <= found <= most:
        raise InvalidArgument(f"expected {what} that is an int of {least} to {most}, found {shown(found)}", found=found)
    return found


def check_member_name(name: str | None) -> str | None:
    """Return the name of a member of a group; None for one that has none.

    Raises:
        InvalidArgument: it is no text, or longer than `NAME_CHARS`.
    """
    if name is not None and len(check_text("a name (name=)", name)) > NAME_CHARS:
        raise InvalidArgument(f"expected name= of up to {NAME_CHARS} characters, found {len(name)}", found=len(name))
    return name
