"""The bytes of one file of a disk in memory: as the system shows them, and as a power cut leaves them.

`written` is what reads see. Every write that no flush has reached is kept, with what it replaced and how long the file was
before it: taking these back, the newest first, leads to the durable bytes. So a flush has nothing to copy, which matters
to a simulator, and only a crash, which is rare, puts the durable bytes together. Zeros that a file is filled with ahead of its
use are not kept either, as in a sparse file: a simulated journal has many more of them than it ever uses.

A crash leaves the durable bytes and, as a rng chooses, some of the 512-byte sectors written since: all, none, a prefix, or any.

A flush that fails may *lose* what it should have written, as Linux does: pages that could not be written are clean from then
on. Reads still see them, every later flush succeeds without them, and a power cut shows what the media have. Only a file to
which that happened keeps the bytes of its media beside those that were written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, TypeAlias

from boki_common.runtime.ports import Random

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""


_Write: TypeAlias = tuple[int, bytes, bytes, int]
"""One that no flush has reached: offset, data, what was kept of the bytes that it replaced, and how long the file was."""


class Content:
    """See the module. `size`: of the file. `writes`: number of writes so far."""

    __slots__ = ("_flushed", "_kept", "_media", "_unflushed", "size", "writes")

    def __init__(self, data: bytes = b"") -> None:
        self.size = len(data)
        self._kept = bytearray(data)
        """The file without zeros at its end that nobody wrote anything behind."""
        self.writes = 0
        self._flushed = 0
        """So many of them are durable."""
        self._unflushed: list[_Write] = []
        """The others, but for lost ones."""
        self._media: bytearray | None = None
        """What stable media hold, once some write was lost."""

    @property
    def written(self) -> bytes:
        """What reads see, all of it."""
        return bytes(self._kept).ljust(self.size, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        kept, end = self._kept, offset + len(data)
        self._unflushed.append((offset, data, bytes(memoryview(kept)[offset:end]), self.size))
        if end <= len(kept):
            kept[offset:end] = data
        else:
            _put(kept, offset, data)
            if end > self.size and data:
                self.size = end
        self.writes += 1

    def fill(self, offset: int, zeros: bytes) -> None:
        """As `write`."""
        if offset < len(self._kept):
            self.write(offset, zeros)
            return
        self._unflushed.append((offset, zeros, b"", self.size))
        if zeros:
            self.size = max(self.size, offset + len(zeros))
        self.writes += 1

    def read(self, offset: int, length: int) -> bytes:
        found = bytes(memoryview(self._kept)[offset : offset + length])
        missing = min(length, self.size - offset) - len(found)
        return found if missing <= 0 else found + bytes(missing)

    def flush(self, upto: int) -> None:
        """The first `upto` writes ever made reach stable media."""
        count = upto - self._flushed
        if count > 0:
            if self._media is not None:
                for offset, data, _, _ in self._unflushed[:count]:
                    _put(self._media, offset, data)
            del self._unflushed[:count]
            self._flushed = upto

    def lose(self) -> None:
        """A flush failed: what was written and not flushed is read as before, and reaches no media."""
        self._media = self.durable()
        self._unflushed.clear()
        self._flushed = self.writes

    def durable(self) -> bytearray:
        """What stable media hold."""
        if self._media is not None:
            return bytearray(self._media)
        view = bytearray(self.written)
        for write in reversed(self._unflushed):
            offset, _, _, size = write
            before = _replaced(write)
            view[offset : offset + len(before)] = before
            del view[size:]
        return view

    def truncate(self, size: int) -> None:
        """Durable at once: nobody relies on the contrary. What is unflushed stays so, as far as it is inside."""
        del self._kept[size:]
        self.size = size
        if self._media is not None:
            del self._media[size:]
            self._media.extend(bytes(size - len(self._media)))
        for number, (offset, data, before, _) in enumerate(self._unflushed):
            data = data[: max(0, size - offset)]
            self._unflushed[number] = (offset, data, before[: len(data)], size)

    def flip_bit(self, offset: int, bit: int) -> None:
        """Damages one bit: of what is written, of what is durable if that goes so far, and of what may become so."""
        for at, view in self._pieces(offset, 1):
            view[offset - at] ^= 1 << bit

    def overwrite(self, offset: int, data: bytes) -> None:
        """As `flip_bit`: these bytes were meant for another place."""
        for at, view in self._pieces(offset, len(data)):
            start, end = max(offset, at), min(offset + len(data), at + len(view))
            view[start - at : end - at] = data[start - offset : end - offset]

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[int, bytearray]]:
        """The file, and each piece of it that is kept beside it, which bytes may be changed in: where it is, and it."""
        end = offset + length
        self._kept.extend(bytes(max(0, min(end, self.size) - len(self._kept))))
        if offset < len(self._kept):
            yield 0, self._kept
        if self._media is not None and offset < len(self._media):
            yield 0, self._media
        for number, write in enumerate(self._unflushed):
            at, size = write[0], write[3]
            if offset < at + len(write[1]) and at < end:
                data, before = bytearray(write[1]), bytearray(_replaced(write))
                yield at, data
                if offset < at + len(before):
                    yield at, before
                self._unflushed[number] = (at, bytes(data), bytes(before), size)

    def after_crash(self, rng: Random) -> bytes:
        """What a power cut leaves."""
        survivor = self.durable()
        for offset, data, _, _ in self._unflushed:
            sectors = _sectors(offset, len(data))
            fate = rng.below(4)
            keep = rng.below(len(sectors) + 1)
            for number, (start, end) in enumerate(sectors):
                survives = (False, True, number < keep, fate == 3 and rng.below(2) == 1)[fate]
                if survives:
                    _put(survivor, offset + start, data[start:end])
        return bytes(survivor)


def _replaced(write: _Write) -> bytes:
    """All that a write replaced, as far as the file went."""
    offset, data, before, size = write
    return before.ljust(min(len(data), size - offset), b"\0")


def _put(view: bytearray, offset: int, data: bytes) -> None:
    if not data:
        return  # an empty write beyond the end does not move the end, as on a real disk
    if len(view) < offset:
        view.extend(bytes(offset - len(view)))
    view[offset : offset + len(data)] = data


def _sectors(offset: int, length: int) -> list[tuple[int, int]]:
    """Where the sector borders of a write fall, relative to its start."""
    cuts = [0]
    cuts.extend(range(SECTOR_BYTES - offset % SECTOR_BYTES, length, SECTOR_BYTES))
    cuts.append(length)
    return [(start, end) for start, end in itertools.pairwise(cuts) if start < end]
