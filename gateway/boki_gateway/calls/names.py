"""How books, tags and seqnums are written in JSON and in URLs. Pure.

| what | form |
|---|---|
| seqnum | text of decimal digits: `"34359738369"`. JavaScript keeps integers up to 2^53 only. Requests may give a JSON integer as well |
| name of a book or tag | itself: `orders`. One that begins with `~` gets another `~` in front: `~~tmp` is the name `~tmp` |
| number of a book or tag | `~` and its digits: `~42`. Requests may give a JSON integer as well |

`~` needs no escape in a URL. Answers use the text forms only, so what was read can be sent back as it is.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import InvalidArgument
from boki_common.ids import U64_MAX

MARK: Final = "~"
_U64_DIGITS: Final = len(str(U64_MAX))


def name_text(name: str | int) -> str:
    """The text form of a book or a tag."""
    if isinstance(name, int):
        return f"{MARK}{name}"
    return MARK + name if name.startswith(MARK) else name


def parse_name(value: str | int, what: str) -> str | int:
    """The book or the tag that a text or an integer means; `what` it is called in the error. Raises InvalidArgument."""
    if isinstance(value, int) or not value.startswith(MARK):
        return value
    rest = value[len(MARK) :]
    if rest.startswith(MARK):
        return rest
    if is_number(rest):
        return int(rest)
    raise InvalidArgument(
        f"{what}: expected a name, or {MARK} and the digits of a number (a name that begins with {MARK} gets another "
        f"{MARK} in front), found {value!r:.80}",
        found=value[:80],
    )


def parse_number(value: str | int, what: str) -> int:
    """A seqnum or another number, given as digits or as an integer. Raises InvalidArgument."""
    if isinstance(value, int):
        return value
    if is_number(value):
        return int(value)
    raise InvalidArgument(f"{what}: expected decimal digits, found {value!r:.80}", found=value[:80])


def is_number(text: str) -> bool:
    """Return whether a text is decimal digits of a number that fits 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= _U64_DIGITS and int(text) <= U64_MAX
