"""Blocking writes to a descriptor: all the bytes, and where wanted around the page cache. Called from threads of `posix_disk`.

O_DIRECT wants memory, offset and length aligned: whatever buffers come are copied through aligned pages, a piece at a time.
The pages belong to all files of a disk together: a writer borrows a piece for one write.

It knows neither files nor errors of ours: who opens descriptors closes them here, and an OSError goes through.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Sequence
from typing import Final

from boki_common import limits
from boki_common.runtime.ports import Buffer

BULK_PIECE_BYTES: Final = 1 * limits.MIB
"""One write to a bulk file is made in pieces of this: what waits behind it on the device waits for no more."""
SMALL_BYTES: Final = 16 * limits.KIB
"""Joining pays up to this: larger ones are few."""
JOINED_BYTES: Final = 2 * limits.MIB
"""Small buffers are copied twice up to this: holding them costs no more than the pages themselves."""
PIECES_KEPT: Final = 2
"""Pieces that stay with a disk between writes: one for a checkpoint, one for compaction."""
IOV_MAX: Final = 1_024
"""Buffers in one pwritev; Linux refuses more (sysconf SC_IOV_MAX)."""


class AlignedPieces:
    """What the writers of one disk borrow; any thread may."""

    def __init__(self) -> None:
        self._spare: deque[mmap.mmap] = deque(maxlen=PIECES_KEPT)

    def borrow(self) -> mmap.mmap:
        """Pages for one piece."""
        try:
            return self._spare.pop()
        except IndexError:
            return mmap.mmap(-1, BULK_PIECE_BYTES)

    def give_back(self, pages: mmap.mmap) -> None:
        self._spare.append(pages)


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

    def _write_through(self, pages: mmap.mmap, offset: int, buffers: Sequence[Buffer]) -> None:
        sizes = list(map(len, buffers))
        if len(sizes) > 1 and max(sizes) <= SMALL_BYTES and sum(sizes) <= JOINED_BYTES:
            buffers = (b"".join(buffers),)  # one call for all instead of one for each
        pages.seek(0)
        room = BULK_PIECE_BYTES
        for buffer in buffers:
            while len(buffer) >= room:
                pages.write(memoryview(buffer)[:room])
                offset = self._write(pages, offset, BULK_PIECE_BYTES)
                buffer = memoryview(buffer)[room:]
                pages.seek(0)
                room = BULK_PIECE_BYTES
            pages.write(buffer)
            room -= len(buffer)
        if room < BULK_PIECE_BYTES:
            self._write(pages, offset, BULK_PIECE_BYTES - room)

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, pages: mmap.mmap, offset: int, size: int) -> int:
        write_fully(self._descriptor, offset, [memoryview(pages)[:size]])
        return offset + size


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
