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

import numpy as np

from boki_common import limits
from boki_common.runtime.ports import Buffer

BULK_PIECE_BYTES: Final = 1 * limits.MIB
"""One write to a bulk file is made in pieces of this: what waits behind it on the device waits for no more."""
SMALL_BYTES: Final = 16 * limits.KIB
"""Up to this a plain copy is over before another thread could take the interpreter."""
JOINED_BYTES: Final = 2 * limits.MIB
"""Small buffers are copied twice up to this: holding them costs no more than the pages themselves."""
PIECES_KEPT: Final = 2
"""Pieces that stay with a disk between writes: one for a checkpoint, one for compaction."""
IOV_MAX: Final = 1_024
"""Buffers in one pwritev; Linux refuses more (sysconf SC_IOV_MAX)."""


class AlignedPiece:
    """Pages for one piece, twice: as a file to append small buffers to, and as an array for large ones."""

    __slots__ = ("bytes", "pages")

    def __init__(self) -> None:
        self.pages = mmap.mmap(-1, BULK_PIECE_BYTES)
        self.bytes = np.frombuffer(self.pages, np.uint8)


class AlignedPieces:
    """What the writers of one disk borrow; any thread may."""

    def __init__(self) -> None:
        self._spare: deque[AlignedPiece] = deque(maxlen=PIECES_KEPT)

    def borrow(self) -> AlignedPiece:
        try:
            return self._spare.pop()
        except IndexError:
            return AlignedPiece()

    def give_back(self, piece: AlignedPiece) -> None:
        self._spare.append(piece)


class DirectWriter:
    """Writes around the page cache, through pages that are aligned as O_DIRECT asks."""

    def __init__(self, descriptor: int, pieces: AlignedPieces) -> None:
        self._descriptor = descriptor
        self._pieces = pieces

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Copies and writes piece by piece; the sum of the lengths is a multiple of the page."""
        piece = self._pieces.borrow()
        try:
            self._write_through(piece, offset, buffers)
        finally:
            self._pieces.give_back(piece)

    def _write_through(self, piece: AlignedPiece, offset: int, buffers: Sequence[Buffer]) -> None:
        sizes = list(map(len, buffers))
        if len(sizes) > 1 and max(sizes) <= SMALL_BYTES and sum(sizes) <= JOINED_BYTES:
            buffers = (b"".join(buffers),)  # one call for all instead of one for each
        pages, filled = piece.pages, 0
        pages.seek(0)
        for buffer in buffers:
            size = len(buffer)
            if size <= SMALL_BYTES and filled + size < BULK_PIECE_BYTES:
                pages.write(buffer)
                filled += size
                continue
            source = np.frombuffer(buffer, np.uint8)
            while len(source):
                taken = min(len(source), BULK_PIECE_BYTES - filled)
                piece.bytes[filled : filled + taken] = source[:taken]  # numpy lets other threads run meanwhile
                filled += taken
                source = source[taken:]
                if filled == BULK_PIECE_BYTES:
                    offset = self._write(piece, offset, filled)
                    filled = 0
            pages.seek(filled)
        if filled:
            self._write(piece, offset, filled)

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, piece: AlignedPiece, offset: int, size: int) -> int:
        write_fully(self._descriptor, offset, [memoryview(piece.pages)[:size]])
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
