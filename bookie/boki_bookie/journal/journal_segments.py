"""The files of the journal: prepared ahead, recycled behind.

    journal/0000000007.segment   generation 7; its header is valid whenever the file has this name
    journal/0000000003.spare     once segment 3, waits to become another one
    journal/preparing            a new file that is being filled with zeros; worthless after a crash

Growing files make every flush a transaction of the file system, and so do merely allocated ones, so a file is really written
once, with zeros, and then used over and over. Filling a file takes as much of the disk as using it: it is flushed piece by piece,
and whoever asked for it may pause it. Knows names and headers, no groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from boki_bookie.formats.journal_format import (
    PAGE_BYTES,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
)
from boki_bookie.open_files import opened
from boki_bookie.settings import BookieSettings
from boki_common.errors import CorruptData
from boki_common.limits import MIB
from boki_common.runtime.ports import Disk, DiskFile, Random

FOLDER: Final = "journal"
_SEGMENT: Final = ".segment"
_SPARE: Final = ".spare"
_PREPARING: Final = f"{FOLDER}/preparing"
_FLUSH_BYTES: Final = 4 * MIB
"""So much is filled and flushed at once, as much as a group of the journal may be: the next group waits behind no more."""

Rest = Callable[[float, float], Awaitable[None]]
"""Called with the seconds that a piece took, and the filled share of the segment; the next piece begins on return."""


class Segment(NamedTuple):
    """A segment ready to be written."""

    header: SegmentHeader
    file: DiskFile


def segment_name(generation: int) -> str:
    return f"{FOLDER}/{generation:010d}{_SEGMENT}"


def generation_of(name: str) -> int | None:
    """The generation of a segment by the name of its file in the folder; None if it is the name of no segment."""
    stem, dot, kind = name.rpartition(".")
    return int(stem) if dot + kind == _SEGMENT and stem.isdigit() else None


class SegmentFiles:
    """Makes, finds and recycles segments. One may be recycled while one is prepared; else one call at a time."""

    def __init__(self, disk: Disk, rng: Random, bookie_id: bytes, settings: BookieSettings) -> None:
        self._disk = disk
        self._rng = rng
        self._bookie_id = bookie_id
        self._segment_bytes = settings.journal_segment_bytes
        self._spares_kept = settings.journal_spare_segments
        self._spares: list[str] = []
        self._spare_names: set[str] = set()
        """Of files that are spares, or are just being made into segments."""
        self._found_to = 0
        """Segments up to this generation may have been made with another size."""

    async def find(self) -> list[int]:
        """Generations that exist, ascending. Spares of the right size are taken into stock, other leftovers removed."""
        generations = []
        self._spares = []
        self._spare_names = set()
        for name in await self._disk.names(FOLDER):
            path = f"{FOLDER}/{name}"
            generation = generation_of(name)
            if generation is not None:
                generations.append(generation)
            elif name.endswith(_SPARE) and await self._usable(path):
                self._spares.append(path)
                self._spare_names.add(path)
            elif name.endswith(_SPARE) or path == _PREPARING:
                await self._disk.remove(path)
        self._found_to = max(generations, default=0)
        return sorted(generations)

    async def prepare(self, generation: int, *, rest: Rest | None = None) -> Segment:
        """Makes the segment of a new generation, from a spare if there is one; without `rest` as fast as the disk can. Raises
        DiskFull, DiskFailed."""
        if self._spares:
            source = self._spares.pop()
            file = await self._disk.open(source)
        else:
            source = _PREPARING
            file = await self._zero_filled(rest)
        salt = int.from_bytes(self._rng.token(4), "little")
        header = SegmentHeader(generation, self._segment_bytes, self._bookie_id, salt)
        await file.write(0, [encode_segment_header(header)], durable=True)
        await self._disk.rename(source, segment_name(generation))
        self._spare_names.discard(source)
        return Segment(header, file)

    async def resume(self, generation: int) -> Segment:
        """A segment that is there, to be written on. Raises as `load`."""
        header, _ = await self.load(generation)
        return Segment(header, await self._disk.open(segment_name(generation)))

    async def load(self, generation: int) -> tuple[SegmentHeader, memoryview]:
        """Header and bytes of a segment that must be there. Raises CorruptData: absent, another bookie's, of another size, or
        its header is damaged. VersionMismatch."""
        async with opened(self._disk, segment_name(generation)) as file:
            data = memoryview(await file.read(0, await file.size()))
        name = self._disk.describe(segment_name(generation))
        header = decode_segment_header(data[:PAGE_BYTES], name=name)
        expected = (generation, len(data), self._bookie_id)
        found = (header.generation, header.segment_bytes, header.bookie_id)
        if found != expected:
            raise CorruptData(
                f"{name}: expected generation {generation}, {len(data)} bytes, of bookie {self._bookie_id.hex()}; found "
                f"generation {found[0]}, {found[1]} bytes, of bookie {found[2].hex()}: the file was cut or is foreign",
                path=name,
                offset=0,
            )
        return header, data

    async def rewrite(self, generation: int, place: range) -> None:
        """What lies there is written again, as it is, and is durable. Raises DiskFull, DiskFailed."""
        async with opened(self._disk, segment_name(generation)) as file:
            await file.write(place.start, [await file.read(place.start, len(place))], durable=True)

    async def erase(self, generation: int, offset: int) -> None:
        """No group begins there any more. Raises DiskFull, DiskFailed."""
        async with opened(self._disk, segment_name(generation)) as file:
            await file.write(offset, [bytes(PAGE_BYTES)], durable=True)

    async def recycle(self, generation: int) -> None:
        """The segment's records are no longer needed."""
        if len(self._spares) < self._spares_kept:
            await self.take_back(generation)
        else:
            await self._disk.remove(segment_name(generation))

    async def take_back(self, generation: int) -> None:
        """The segment is a spare from now on, if it has the right size."""
        spare = self._free_name(generation)
        await self._disk.rename(segment_name(generation), spare)
        if generation > self._found_to or await self._usable(spare):
            self._spares.append(spare)
            self._spare_names.add(spare)
        else:
            await self._disk.remove(spare)

    def _free_name(self, number: int) -> str:
        """A generation that held nothing is made again while its first file may still be a spare."""
        while (name := f"{FOLDER}/{number:010d}{_SPARE}") in self._spare_names:
            number += 1
        return name

    async def _usable(self, name: str) -> bool:
        async with opened(self._disk, name) as file:
            return await file.size() == self._segment_bytes

    async def _zero_filled(self, rest: Rest | None) -> DiskFile:
        await self._disk.remove(_PREPARING)
        file = await self._disk.open(_PREPARING, create=True)
        loop = asyncio.get_running_loop()
        try:
            for first in range(0, self._segment_bytes, _FLUSH_BYTES):
                begun = loop.time()
                stop = min(first + _FLUSH_BYTES, self._segment_bytes)
                await file.fill(first, stop - first)
                if rest is not None:
                    await rest(loop.time() - begun, stop / self._segment_bytes)
        except BaseException:
            await file.close()
            await self._disk.remove(_PREPARING)
            raise
        return file
