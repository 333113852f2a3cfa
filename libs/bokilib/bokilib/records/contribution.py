"""Contributions of libraries to a record, and how several are joined into one. Pure.

A contribution is (tags, expect, events). The joined one has each tag once, the lowest of several expectations of a stream, and the
events in the order of the contributions. The bounds are the log's 255 tags and 256 expectations, and 512 KiB, so that the record has
room for its envelope. A contribution over the bounds is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from boki_common.errors import InvalidArgument
from boki_common.limits import MIB, RECORD_EXPECTATIONS, RECORD_TAGS
from bokilib.errors import AtomicTooLarge
from bokilib.records.events import Event
from bokilib.records.isolation import lowest

ATOMIC_BYTES: Final = MIB // 2


class Contribution(msgspec.Struct, frozen=True):
    """The part of a record that one library, or one transaction, adds.

    Attributes:
        tags: streams that the record joins.
        expect: expectations of streams, including fences.
        events: of the library.
    """

    tags: tuple[str, ...] = ()
    expect: Mapping[str, int | None] = {}
    events: tuple[Event, ...] = ()


def joined(contributions: Iterable[Contribution]) -> Contribution:
    """Join contributions into one.

    Raises:
        InvalidArgument: two of them begin the same id, that is, join its stream and expect it to be new.
    """
    several = list(contributions)
    new = [tag for one in several for tag in one.tags if one.expect.get(tag, 0) is None]
    if len(new) > len(set(new)):
        twice = next(tag for tag in new if new.count(tag) > 1)
        raise InvalidArgument(f"expected each id to begin once in a record, found {twice!r} twice", found=twice)
    return Contribution(
        tuple(dict.fromkeys(tag for one in several for tag in one.tags)),
        lowest(one.expect for one in several),
        tuple(event for one in several for event in one.events),
    )


def check_fits(one: Contribution, size: int) -> None:
    """Check that a contribution fits one record.

    Args:
        one: the contribution.
        size: of the record, in bytes.

    Raises:
        AtomicTooLarge: it has too many tags, expectations or bytes; the error says which.
    """
    for what, found, limit in (
        ("tags", len(one.tags), RECORD_TAGS),
        ("expectations", len(one.expect), RECORD_EXPECTATIONS),
        ("bytes", size, ATOMIC_BYTES),
    ):
        if found > limit:
            raise AtomicTooLarge(
                f"expected at most {limit} {what} in a record, found {found}: "
                + ("read a collection by a scan, or less at once" if what == "expectations" else "commit less at once"),
                expected=limit,
                found=found,
                what=what,
            )


def fits(one: Contribution, size: int) -> bool:
    """Return whether a contribution whose record has `size` bytes fits one record."""
    return counts_fit(len(one.tags), len(one.expect), size)


def counts_fit(tags: int, expectations: int, size: int) -> bool:
    """Return whether so many tags, expectations and bytes fit one record."""
    return tags <= RECORD_TAGS and expectations <= RECORD_EXPECTATIONS and size <= ATOMIC_BYTES
