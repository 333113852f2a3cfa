"""Voids: what takes the numbers of records that are not to be in the log. Pure.

- *Holes*. An engine may answer a conflict at once and order the record later (DESIGN §6.6). If it dies in between, the number is a
  hole, and all later ones are refused. A void fills it, which is no record whatever happened to the book since. A record with an
  expectation that had to fail is none: after a trim that forgets the whole book, any expectation of no record holds.
- What was *settled*: given up, and not to be applied any more (DESIGN §6.8).

Both stand before the records of their writer, in one run of a frame, and count towards the size of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Final

from boki._bounds import FRAME_TARGET_BYTES, RUN_BYTES, VOID_BYTES
from boki._pending import Pending
from boki._special import Special
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RUN_RESENT, RUN_VOID
from boki_common.records.tag_names import NO_NAMES
from boki_common.records.void_checksums import void_checksum

_TAGS: Final = (b"", 0, NO_NAMES)


def add_voids(builder: BatchBuilder, count: int, checksums: Iterable[int] = ()) -> None:
    """Add records to an open VOID run: each takes its number, and says nothing.

    Args:
        checksums: of the records whose numbers these are, as voids of a named writer say them.
    """
    builder.add_rows(repeat(_TAGS, count), repeat(b"", count))
    for crc in checksums:
        builder.checksum(crc)


def fill_voids(
    builder: BatchBuilder, size: int, key: bytes, special: Special, item: Pending, low: int
) -> tuple[int, Pending | None]:
    """Move holes, then queued items that are voided, into a batch, as one run, as far as the batch has room.

    Args:
        size: of the batch so far, roughly.
        key: book and writer.
        item: the first that is queued.
        low: the lowest undecided number; the holes end below it.

    Returns:
        The size of the batch now, at least `FRAME_TARGET_BYTES` if holes are left; the first item that is queued then.
    """
    named, next_hole = special.flags & RUN_NAMED, special.next_hole
    holes = min(low - next_hole, (FRAME_TARGET_BYTES - size) // VOID_BYTES + 1) if next_hole else 0
    if not holes and item.first > special.voided_to:
        return size, item  # the holes are on the connection already
    first = next_hole if holes else item.first
    builder.start_run_of(key, first, min(first, low), special.flags | RUN_VOID | RUN_RESENT)
    size += RUN_BYTES
    if holes:
        assert item.first == low, f"holes below {low}, and number {item.first} is next to be sent"
        add_voids(builder, holes, (0,) * holes if named else ())
        size += holes * VOID_BYTES
        special.filled(first + holes)
        if first + holes < low:
            return max(size, FRAME_TARGET_BYTES), item
    queued: Pending | None = item
    while queued is not None and queued.first <= special.voided_to and size < FRAME_TARGET_BYTES:
        add_voids(builder, queued.count, map(void_checksum, queued.checksums()) if named else ())
        size += queued.count * VOID_BYTES
        queued = queued.next
    return size, queued
