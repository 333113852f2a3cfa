"""Blocking writes to a descriptor: all the bytes, and where wanted around the page cache. Called from threads of `posix_disk`.

O_DIRECT wants memory, offset and length aligned: whatever buffers come are copied through aligned pages, a piece at a time.
The pieces belong to all files of a disk together: a writer borrows one for one write. They lie in one huge page, where the
system gives one: a piece is then one stretch of memory to the device, and not a place in its queue for every 4 KiB, of which
a virtual disk has 256 for everybody.

It knows neither files nor errors of ours: who opens descriptors closes them here, and an OSError goes through.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import deque
from collections.abc import Sequence
from typing import Final

from boki_common import limits
from boki_common.runtime.ports import Buffer

BULK_PIECE_BYTES: Final = 512 * limits.KIB
"""One write to a bulk file is made in pieces of this: what waits behind it on the device waits for no more."""
PIECES_KEPT: Final = 4
"""Pieces that stay with a disk between writes, and that are made together: they fill a huge page."""
SMALL_BYTES: Final = 16 * limits.KIB
"""Joining pays up to this: larger ones are few."""
JOINED_BYTES: Final = 2 * limits.MIB
"""Small buffers are copied twice up to this: holding them costs no more than the pages themselves."""
IOV_MAX: Final = 1_024
"""Buffers in one pwritev; Linux refuses more (sysconf SC_IOV_MAX)."""
_HUGE_PAGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
"""Only Linux has it."""


class AlignedPieces:
    """What the writers of one disk borrow; any thread may."""

    def __init__(self) -> None:
        self._spare: deque[memoryview] = deque(maxlen=PIECES_KEPT)

    def borrow(self) -> memoryview:
        """Pages for one piece."""
        try:
            return self._spare.pop()
        except IndexError:
            piece, *others = _made_together()
            self._spare.extend(others)
            return piece

    def give_back(self, pages: memoryview) -> None:
        self._spare.append(pages)


def _made_together() -> list[memoryview]:
    pages = mmap.mmap(-1, PIECES_KEPT * BULK_PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _HUGE_PAGE is not None:
        with contextlib.suppress(OSError):  # it is a wish: without huge pages, or short of memory, ordinary ones do
            pages.madvise(_HUGE_PAGE)
    view = memoryview(pages)
    return [view[at : at + BULK_PIECE_BYTES] for at in range(0, len(view), BULK_PIECE_BYTES)]


class DirectWriter:
    """Writes around the page cache, through pages that are aligned as O_DIRECT asks."""

    def __init__(self, descriptor: int, pieces: AlignedPieces) -> None:
        self._descriptor = descriptor
        self._pieces = pieces

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Copies and writes piece by piece; the sum of the lengths is a multiple of the page."""
        pages = self._pieces.borrow()
        try:
            self._write_through(pages, offset, buffers)
        finally:
            self._pieces.give_back(pages)

    def _write_through(self, pages: memoryview, offset: int, buffers: Sequence[Buffer]) -> None:
        sizes = list(map(len, buffers))
        if len(sizes) > 1 and max(sizes) <= SMALL_BYTES and sum(sizes) <= JOINED_BYTES:
            buffers = (b"".join(buffers),)  # one call for all instead of one for each
        filled = 0
        for buffer in buffers:
            left = memoryview(buffer)
            while filled + len(left) >= BULK_PIECE_BYTES:
                room = BULK_PIECE_BYTES - filled
                pages[filled:] = left[:room]
                offset = self._write(pages, offset)
                left = left[room:]
                filled = 0
            pages[filled : filled + len(left)] = left
            filled += len(left)
        if filled:
            self._write(pages[:filled], offset)

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, pages: memoryview, offset: int) -> int:
        write_fully(self._descriptor, offset, [pages])
        return offset + len(pages)


def write_fully(descriptor: int, offset: int, buffers: Sequence[Buffer]) -> None:
    """pwritev in pieces that the system accepts, going on after short writes."""
    first = 0
    while first < len(buffers):
        chunk: Sequence[Buffer] = buffers[first : first + IOV_MAX]
        wanted = sum(map(len, chunk))
        written = os.pwritev(descriptor, chunk, offset)
        while written < wanted:
            offset += written
            wanted -= written
            chunk = _without(chunk, written)
            written = os.pwritev(descriptor, chunk, offset)
        offset += written
        first += IOV_MAX


def _without(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """The buffers from the byte `written` on."""
    for number, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[number + 1 :]]
        written -= len(buffer)
    raise AssertionError("a short write wrote more than it was given")
