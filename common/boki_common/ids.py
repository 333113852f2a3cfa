"""Identifiers: what each number means, how it is packed, how names become numbers (DESIGN §5).

    seqnum   63 bits   term:28 | pos:35     names one place in the order of one physical log; 0 is no seqnum
    book     u64       xxh3-64 of a name; its slot is xxh3-64 of the 8 little-endian bytes, mod 1024
    tag      u64       xxh3-64 of a name, 0 → 1 and 2^64-1 → 2; 0 means *every record of the book*, 2^64-1 is invalid
    writer   128 bits  random and with its birth (`writer_ids`) for a session, xxh3-128 of the name for a named writer
    Position (term, entry) of a metalog; compares as a tuple

Pure: no IO, no randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, NewType, cast

import xxhash

from boki_common import limits
from boki_common.errors import InvalidArgument, InvalidTag

Seqnum = NewType("Seqnum", int)
BookId = NewType("BookId", int)
TagId = NewType("TagId", int)
Term = NewType("Term", int)
LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)
Incarnation = NewType("Incarnation", str)
"""32 hexadecimal digits, random at each start of a process."""
BookieId = NewType("BookieId", str)

U64_MAX: Final = 2**64 - 1
ALL_RECORDS: Final = TagId(0)
INVALID_TAG: Final = U64_MAX
NO_ENTRY: Final = EntryId(-1)
SEQNUM_MAX: Final = Seqnum(2**63 - 1)

_POSITION_MASK: Final = (1 << limits.POSITION_BITS) - 1


class Position(NamedTuple):
    """A place in a metalog: everything of `term` below `entry` (exclusive) has been seen."""

    term: int
    entry: int


make_position: Final = cast(Callable[[tuple[int, int]], Position], partial(tuple.__new__, Position))
"""`Position._make` without a frame of Python."""


def seqnum(term: int, pos: int) -> Seqnum:
    """Packs a term and a position. Raises AssertionError out of range: both are ours."""
    assert 0 < term <= limits.TERM_MAX and 0 <= pos <= _POSITION_MASK, (term, pos)
    return Seqnum(term << limits.POSITION_BITS | pos)


def term_of(number: int) -> Term:
    return Term(number >> limits.POSITION_BITS)


def pos_of(number: int) -> int:
    return number & _POSITION_MASK


def book_id(name: str | int) -> BookId:
    """The number of a book: a u64 as it is, or xxh3-64 of a name. Raises InvalidArgument: not a u64, an empty name, or a name
    over `limits.BOOK_NAME_BYTES`."""
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise InvalidArgument(f"a book is a name or an unsigned 64-bit number, not {type(name).__name__}")
    if isinstance(name, int):
        if not 0 <= name <= U64_MAX:
            raise InvalidArgument(f"expected a book number from 0 to 2**64-1, found {name}", found=name)
        return BookId(name)
    encoded = name.encode()
    if not 0 < len(encoded) <= limits.BOOK_NAME_BYTES:
        raise InvalidArgument(
            f"expected a book name of 1 to {limits.BOOK_NAME_BYTES} bytes, found {len(encoded)}", found=len(encoded)
        )
    return BookId(xxhash.xxh3_64_intdigest(encoded))


def tag_id(tag: str | int) -> TagId:
    """The number of a tag that a record may carry. Raises InvalidTag: 0, 2**64-1, not a u64, an empty name, or a name over
    `limits.TAG_NAME_BYTES`."""
    if type(tag) is str or isinstance(tag, str):
        encoded = tag.encode()
        if not 0 < len(encoded) <= limits.TAG_NAME_BYTES:
            raise InvalidTag(
                f"expected a tag name of 1 to {limits.TAG_NAME_BYTES} bytes, found {len(encoded)}: {tag[:40]!r}",
                found=len(encoded),
            )
        number = xxhash.xxh3_64_intdigest(encoded)
        return TagId(number if 0 < number < INVALID_TAG else tag_hash(encoded))
    if isinstance(tag, bool) or not isinstance(tag, int):
        raise InvalidTag(f"a tag is a name or an unsigned 64-bit number, not {type(tag).__name__}")
    if not 0 < tag < U64_MAX:
        raise InvalidTag(f"expected a tag number from 1 to 2**64-2, found {tag}; 0 means every record", found=tag)
    return TagId(tag)


def tag_hash(name: bytes) -> int:
    """xxh3-64 of a tag name, with the two reserved values moved: 0 → 1, 2**64-1 → 2."""
    number = xxhash.xxh3_64_intdigest(name)
    if number == 0:
        return 1
    return 2 if number == INVALID_TAG else number


def slot_of(book: int) -> int:
    """The slot (0 … 1023) that decides which physical log serves a book."""
    return xxhash.xxh3_64_intdigest(book.to_bytes(8, "little")) % limits.SLOTS
