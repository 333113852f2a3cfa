"""What libraries add to one record, and how it becomes one. Pure.

A contribution is (tags, expect, events). Joined: each tag once, of several expectations of one stream the lowest, events in
the order of the contributions. The bounds are the log's: 255 tags, 256 expectations; and 512 KiB, so that a record leaves room
for what opens it. What is over them is refused before anything is sent.
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
    """What one library, or one transaction, adds to a record.

    Attributes:
        tags: streams it joins.
        expect: streams that must not have moved; fences among them.
        events: what happens.
    """

    tags: tuple[str, ...] = ()
    expect: Mapping[str, int | None] = {}
    events: tuple[Event, ...] = ()


def joined(contributions: Iterable[Contribution]) -> Contribution:
    """One contribution of several. Raises InvalidArgument: two use one id for the first time (expect its stream to be new, and join it)."""
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
    """Raises AtomicTooLarge, which names what there is too much of.

    Args:
        size: of the record, in bytes.
    """
    for what, found, limit in (
        ("tags", len(one.tags), RECORD_TAGS),
        ("expectations", len(one.expect), RECORD_EXPECTATIONS),
        ("bytes", size, ATOMIC_BYTES),
    ):
        if found > limit:
            raise AtomicTooLarge(
                f"what commits together has {found} {what}, a record takes {limit}: "
                + ("read a collection by a scan, or less at once" if what == "expectations" else "commit less at once"),
                expected=limit,
                found=found,
                what=what,
            )


def fits(one: Contribution, size: int) -> bool:
    """Whether it is within the bounds."""
    return counts_fit(len(one.tags), len(one.expect), size)


def counts_fit(tags: int, expectations: int, size: int) -> bool:
    """Whether so many, and so many bytes, are within the bounds."""
    return tags <= RECORD_TAGS and expectations <= RECORD_EXPECTATIONS and size <= ATOMIC_BYTES
