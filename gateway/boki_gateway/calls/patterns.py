"""What the OpenAPI document says of texts and numbers beyond their type: patterns and bounds. Pure.

Whatever fits them is accepted, as far as a form can show: the parsers stay the judges, with messages of their own. They take a
little more, such as leading zeros, and names that mix characters of one to four bytes up to the full length.

Patterns are of the dialect that ECMA-262, Python and Rust share. A `format` names what a text is, for whoever makes values of it.
"""

from __future__ import annotations

from typing import Any, Final

from boki_common import limits
from boki_common.ids import SEQNUM_MAX, U64_MAX

Schema = dict[str, Any]

_UTF8_CLASSES: Final = ((r"\u007f", 1), (r"\u07ff", 2), (r"\uffff", 3))
"""The highest character of at most so many bytes. All others have four."""
_UTF8_BYTES: Final = 4
_ANYTHING: Final = r"[\s\S]"


def digits(lowest: int, highest: int) -> str:
    """A pattern of the decimal digits of `lowest` (0 or 1) to `highest`, without zeros in front, without anchors."""
    assert lowest in (0, 1) and highest >= 10
    text = str(highest)
    choices = ["0"] if lowest == 0 else []
    choices.append(_run("[1-9]", len(text) - 2))
    for place, digit in enumerate(text):
        below = 1 if place == 0 else 0
        if int(digit) > below:
            smaller = str(below) if below == int(digit) - 1 else f"[{below}-{int(digit) - 1}]"
            choices.append(_run(f"{text[:place]}{smaller}", len(text) - place - 1, exactly=True))
    return f"(?:{'|'.join([*choices, text])})"


def _run(before: str, count: int, *, exactly: bool = False) -> str:
    return before + ("" if count == 0 else f"[0-9]{{{count}}}" if exactly else f"[0-9]{{0,{count}}}")


def utf8(most: int, *, but: bool = False) -> str:
    """A pattern of texts of 1 to `most` bytes of UTF-8, without anchors; `but` not those that begin with ~."""
    choices = []
    for highest, size in _UTF8_CLASSES:
        any_of = rf"[\u0000-{highest}]"
        first = rf"[\u0000-}}\u007f-{highest}]" if but else any_of
        choices.append(f"{first}{any_of}{{0,{most // size - 1}}}")
    choices.append(rf"{'[^~]' if but else _ANYTHING}{_ANYTHING}{{0,{most // _UTF8_BYTES - 1}}}")
    return f"(?:{'|'.join(choices)})"


def name(most: int, lowest: int, highest: int) -> str:
    """A pattern of a book or a tag in its text form: its name, `~~` and the rest of one that begins so, or `~` and digits.

    Args:
        most: bytes of the name.
        lowest: number that is allowed; `highest` likewise.
    """
    number = digits(lowest, highest)
    return f"^(?:~{number}|~~{utf8(most - 1)}?|{utf8(most, but=True)})$"


SEQNUM: Final[Schema] = {"pattern": f"^{digits(1, SEQNUM_MAX)}$"}
BOUND: Final[Schema] = {"pattern": f"^{digits(0, U64_MAX)}$"}
EVENT_ID: Final[Schema] = {"pattern": f"^{digits(0, SEQNUM_MAX)}$"}
TIME_MS: Final[Schema] = {"pattern": f"^{digits(0, 2**63 - 1)}$"}
SEQNUM_NUMBER: Final[Schema] = {"minimum": 1, "maximum": SEQNUM_MAX}
BOUND_NUMBER: Final[Schema] = {"minimum": 0, "maximum": U64_MAX}
BOOK: Final[Schema] = {"pattern": name(limits.BOOK_NAME_BYTES, 0, U64_MAX), "format": "boki-book"}
TAG: Final[Schema] = {"pattern": name(limits.TAG_NAME_BYTES, 1, U64_MAX - 1), "format": "boki-tag"}
TAG_NUMBER: Final[Schema] = {"minimum": 1, "maximum": U64_MAX - 1}
STREAM: Final[Schema] = {"pattern": name(limits.TAG_NAME_BYTES, 0, U64_MAX - 1), "format": "boki-stream"}
"""A tag, or 0: every record of the book."""
STREAM_NUMBER: Final[Schema] = {"minimum": 0, "maximum": U64_MAX - 1}
WRITER: Final[Schema] = {"pattern": f"^{utf8(limits.TAG_NAME_BYTES)}$", "format": "boki-writer"}
TOKEN: Final[Schema] = {"pattern": r"^boki[12]\.[A-Za-z0-9_-]+$", "format": "boki-session"}
"""A token ends with a checksum, so what fits the pattern only is refused."""
_QUARTET: Final = "[A-Za-z0-9+/]"
BASE64: Final[Schema] = {
    "pattern": f"^(?:{_QUARTET}{{4}})*(?:{_QUARTET}{{2}}==|{_QUARTET}{{3}}=)?$",
    "contentEncoding": "base64",
}
