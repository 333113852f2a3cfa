"""The bytes of one file of a disk in memory: as the system shows them, and as a power cut leaves them.

`written` is what reads see. Every write that no flush has reached is kept, with what it replaced and how long the file was
before it: taking these back, the newest first, leads to the durable bytes. So a flush has nothing to copy, which matters
to a simulator, and only a crash, which is rare, puts the durable bytes together.

A crash leaves the durable bytes and, as a rng chooses, some of the 512-byte sectors of what was written since: all of them,
none, a prefix, or any.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

from boki_common.runtime.ports import Random

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""


class _Write(NamedTuple):
    """One that no flush has reached. `before` is what it replaced, as far as the file went, which was `size` long."""

    offset: int
    data: bytes
    before: bytes
    size: int


class Content:
    """See the module."""

    __slots__ = ("_flushed", "_unflushed", "writes", "written")

    def __init__(self, data: bytes = b"") -> None:
        self.written = bytearray(data)
        self.writes = 0
        """Number of writes so far."""
        self._flushed = 0
        """So many of them are durable."""
        self._unflushed: list[_Write] = []
        """The others."""

    def write(self, offset: int, data: bytes) -> None:
        written = self.written
        size, end = len(written), offset + len(data)
        self._unflushed.append(_Write(offset, data, bytes(memoryview(written)[offset:end]), size))
        if end <= size:  # as a rule
            written[offset:end] = data
        else:
            _put(written, offset, data)
        self.writes += 1

    def read(self, offset: int, length: int) -> bytes:
        return bytes(memoryview(self.written)[offset : offset + length])

    def flush(self, upto: int) -> None:
        """The first `upto` writes ever made reach stable media."""
        count = upto - self._flushed
        if count > 0:
            del self._unflushed[:count]
            self._flushed = upto

    def durable(self) -> bytearray:
        """What stable media hold."""
        view = bytearray(self.written)
        for offset, _, before, size in reversed(self._unflushed):
            view[offset : offset + len(before)] = before
            del view[size:]
        return view

    def truncate(self, size: int) -> None:
        """Durable at once: nobody relies on the contrary. What is unflushed stays so, as far as it is inside."""
        del self.written[size:]
        self.written.extend(bytes(size - len(self.written)))
        kept = []
        for offset, data, before, _ in self._unflushed:
            data = data[: max(0, size - offset)]
            before = before[: len(data)].ljust(len(data), b"\0")
            kept.append(_Write(offset, data, before, size))
        self._unflushed = kept

    def flip_bit(self, offset: int, bit: int) -> None:
        """Damages one bit: of what is written, of what is durable if that goes so far, and of what may become so."""
        for at, view in self._pieces(offset, 1):
            view[offset - at] ^= 1 << bit

    def overwrite(self, offset: int, data: bytes) -> None:
        """As `flip_bit`: these bytes were meant for another place."""
        _put(self.written, offset, data)
        for at, view in self._pieces(offset, len(data)):
            start, end = max(offset, at), min(offset + len(data), at + len(view))
            view[start - at : end - at] = data[start - offset : end - offset]

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[int, bytearray]]:
        """The file, and each piece of it that is kept beside it, which bytes may be changed in: where it is, and it."""
        if offset < len(self.written):
            yield 0, self.written
        for number, write in enumerate(self._unflushed):
            if offset < write.offset + len(write.data) and write.offset < offset + length:
                data, before = bytearray(write.data), bytearray(write.before)
                yield write.offset, data
                if offset < write.offset + len(before):
                    yield write.offset, before
                self._unflushed[number] = write._replace(data=bytes(data), before=bytes(before))

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
