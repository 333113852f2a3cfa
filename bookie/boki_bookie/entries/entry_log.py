"""The entry log: where checkpoints put entries for good, and reads find them (bytes: `entry_log_format`).

Written by one checkpoint at a time, at its `tail`: `begin` goes back to what was committed last, `append_some` puts entries
behind each other in large writes, `commit` makes them durable, stage by stage, and `release` says that the mark on disk names
the end. What an interrupted checkpoint left behind that end is overwritten. Compaction writes beside it, in files of its own
(`open_output`). Read by anybody, at any time, at locations that the index knows; each read checks the stored checksum.

A file that is no longer written is *finished*: it lives as long as the index says that something is in it, and whoever
knows that nothing is may `remove` it. Numbers of removed files are not used again while the store runs, so a reader that
comes late meets no other entry, only an absent file.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from boki_bookie.entries.ledger_index import Extent, Place
from boki_bookie.formats.entry_log_format import (
    ENTRY_HEADER_BYTES,
    NO_SUMS,
    OFFSET_BITS,
    OFFSET_MASK,
    PAGE_BYTES,
    check_file_header,
    decode_entry,
    decode_run,
    encode_entries,
    encode_file_header,
    pack_location,
    sound_body,
    stretches,
    unpack_location,
)
from boki_bookie.open_files import opened
from boki_common.errors import StorageError
from boki_common.limits import MIB
from boki_common.runtime.ports import Buffer, Disk, DiskFile

FOLDER: Final = "entries"
WRITE_BYTES: Final = 2 * MIB
"""In one hand-off to a thread; the disk still gets pieces that others need not wait for long."""
READ_BYTES: Final = 1 * MIB
"""Neighbours are read together up to this."""


class EntryLogEnd(NamedTuple):
    """Where the committed bytes end."""

    file_number: int
    offset: int


def file_name(file_number: int) -> str:
    return f"{FOLDER}/{file_number:010d}.entries"


class EntryWriter:
    """Puts entries behind each other, from an end on, in a new file when one is full.

    `open_numbers` are the files that nobody else may judge by what the index says of them.
    """

    def __init__(self, log: EntryLog, end: EntryLogEnd) -> None:
        self.committed = end
        self.uncommitted_bytes = 0
        """Written since the last commit."""
        self.open_numbers = [end.file_number]
        self._log = log
        self._end = end
        self._buffers: list[Buffer] = []
        self._buffers_at = end.offset
        self._written: dict[int, None] = {}

    def begin(self) -> None:
        """Everything appended since the last commit is forgotten."""
        self._end = self.committed
        self.uncommitted_bytes = 0
        self._buffers = []
        self._buffers_at = self._end.offset
        self._written = {}
        at = self.open_numbers.index(self.committed.file_number) + 1
        self._log.give_back(self.open_numbers[at:])
        del self.open_numbers[at:]

    async def append(self, ledger_id: int, bodies: Mapping[int, memoryview], order: Sequence[int]) -> array[int]:
        """Adds entries of one ledger in `order`; returns their locations. Raises DiskFull, DiskFailed."""
        locations: array[int] = array("Q")
        while len(locations) < len(order):
            await self.append_some(ledger_id, bodies, order, locations)
        return locations

    async def append_some(
        self,
        ledger_id: int,
        bodies: Mapping[int, memoryview],
        order: Sequence[int],
        locations: array[int],
        stage_bytes: int = sys.maxsize,
        sums: Mapping[int, int] = NO_SUMS,
    ) -> None:
        """Goes on where `locations` end, until `order` or one write is full; adds to them. Raises DiskFull, DiskFailed.

        A write that makes `stage_bytes` since the last commit is flushed with it: the commit then has nothing to wait for.
        Bodies whose crc32c is in `sums` are not read for it.
        """
        file_bytes, bookie_id = self._log.file_bytes, self._log.bookie_id
        number, offset = self._end
        if offset >= file_bytes:
            await self._flush()
            number, offset = self._log.new_number(), 0
            self.open_numbers.append(number)
        if offset == 0:
            self._buffers_at = 0
            self._buffers.append(encode_file_header(number, bookie_id))
            offset = PAGE_BYTES
        stop = min(self._buffers_at + WRITE_BYTES, max(file_bytes, offset + 1))
        offset = encode_entries(ledger_id, bodies, order, locations, self._buffers, number, offset, stop, sums)
        self._end = EntryLogEnd(number, offset)
        size = offset - self._buffers_at
        if size >= WRITE_BYTES:
            await self._flush(durable=self.uncommitted_bytes + size >= stage_bytes)  # moves the end to the next page

    async def commit(self) -> None:
        """What was appended is durable, counts and may be read; the caller updates the index. Raises DiskFull, DiskFailed."""
        await self._flush()
        for number in self._written:
            await (await self._log.file(number, create=True)).sync()
        self._written = {}
        self.uncommitted_bytes = 0
        self.committed = self._end

    def release(self) -> None:
        """What is on disk knows what was committed; but for the last, the files are like any other."""
        self.open_numbers = [self.committed.file_number]

    async def _flush(self, *, durable: bool = False) -> None:
        """Writes what collected, to the end of its last page."""
        if not self._buffers:
            return
        number, offset = self._end
        padding = -offset % PAGE_BYTES
        if padding:
            self._buffers.append(bytes(padding))
            self._end = EntryLogEnd(number, offset + padding)
        file = await self._log.file(number, create=True)
        await file.write(self._buffers_at, self._buffers, durable=durable)
        if durable:  # and so is what was written of this file before
            self._written.pop(number, None)
        else:
            self._written[number] = None
        self.uncommitted_bytes += self._end.offset - self._buffers_at
        self._buffers = []
        self._buffers_at = self._end.offset
        self._log.grew(self._end)


class EntryLog:
    """See the module. A new log ends at file 1, offset 0: nothing exists yet. `find` adds the files that are there."""

    def __init__(self, disk: Disk, *, bookie_id: bytes, end: EntryLogEnd, file_bytes: int, open_files: int) -> None:
        self.bookie_id = bookie_id
        self.file_bytes = file_bytes
        self.files: dict[int, int] = {end.file_number: end.offset} if end.offset else {}
        """Bytes of each file that exists, also of those that an interrupted checkpoint left."""
        self._disk = disk
        self._open_files = open_files
        self._open: OrderedDict[int, DiskFile] = OrderedDict()
        self._opening = asyncio.Lock()
        self._last_number = end.file_number
        self._given_back: list[int] = []
        self.tail = EntryWriter(self, end)
        """Where checkpoints write."""
        self._writers = [self.tail]

    async def find(self) -> None:
        """Looks at what is in the folder; before the first write."""
        for name in await self._disk.names(FOLDER):
            stem, _, kind = name.partition(".")
            if kind != "entries" or not stem.isdigit():
                continue
            async with opened(self._disk, f"{FOLDER}/{name}") as file:
                size = await file.size()
            number = int(stem)
            if number != self.tail.committed.file_number:
                self.files[number] = size
            self._last_number = max(self._last_number, number)

    # -- files

    @property
    def stored_bytes(self) -> int:
        """What all files take up."""
        return sum(self.files.values())

    def finished(self) -> dict[int, int]:
        """Bytes of each file that nobody writes, by number, ascending."""
        written = {number for writer in self._writers for number in writer.open_numbers}
        return {number: size for number, size in sorted(self.files.items()) if number not in written}

    def new_number(self) -> int:
        """The number of a new file; never one whose file was removed in this life of the store."""
        if self._given_back:
            return self._given_back.pop(0)
        self._last_number += 1
        return self._last_number

    def give_back(self, numbers: Sequence[int]) -> None:
        """Files that were begun and hold nothing that counts: they are written again from the start."""
        self._given_back += numbers

    def grew(self, end: EntryLogEnd) -> None:
        self.files[end.file_number] = max(end.offset, self.files.get(end.file_number, 0))

    def open_output(self) -> EntryWriter:
        """Another end to write at, in a file of its own, beside that of the checkpoints."""
        writer = EntryWriter(self, EntryLogEnd(self.new_number(), 0))
        self._writers.append(writer)
        return writer

    def close_output(self, output: EntryWriter) -> None:
        """Nothing more is written there; what was not committed is dead."""
        self._writers.remove(output)

    async def remove(self, number: int) -> None:
        """Deletes a finished file; what is being read of it is still read. Raises DiskFailed."""
        assert number in self.finished(), number
        file = self._open.pop(number, None)
        if file is not None:
            await file.close()
        await self._disk.remove(file_name(number))
        self.files.pop(number, None)

    # -- reading

    async def read(self, wanted: Sequence[tuple[int, Place]]) -> list[memoryview | StorageError]:
        """Bodies of stored entries, given as (ledger, place), in their order; neighbours cost one read.

        An entry that cannot be read is a StorageError in its place: it exists, its content is unknown.
        """
        results: list[memoryview | StorageError] = []
        at = 0
        while at < len(wanted):
            number, offset = unpack_location(wanted[at][1].location)
            stop = at
            end = offset
            while stop < len(wanted) and wanted[stop][1].location == pack_location(number, end):
                if stop > at and end - offset >= READ_BYTES:
                    break
                end += ENTRY_HEADER_BYTES + wanted[stop][1].body_bytes
                stop += 1
            results.extend(await self._read_run(number, offset, end, wanted[at:stop]))
            at = stop
        return results

    async def _read_run(
        self, number: int, offset: int, end: int, wanted: Sequence[tuple[int, Place]]
    ) -> list[memoryview | StorageError]:
        try:
            file = await self.file(number)
            data = memoryview(await file.read(offset, end - offset))
        except StorageError as error:
            return [error for _ in wanted]
        name = self._disk.describe(file_name(number))
        results: list[memoryview | StorageError] = []
        at = 0
        for ledger_id, place in wanted:
            stop = at + ENTRY_HEADER_BYTES + place.body_bytes
            try:
                body = decode_entry(data[at:stop], ledger_id, place.entry_id, name=name, offset=offset + at)
                results.append(body)
            except StorageError as error:
                results.append(error)
            at = stop
        return results

    async def read_extent(self, ledger_id: int, extent: Extent) -> list[memoryview]:
        """Bodies from the first entry of the extent on, up to one that cannot be read: `read` says what is wrong with it."""
        bodies: list[memoryview] = []
        for start, stop in stretches(extent.locations, extent.body_bytes, most=READ_BYTES):
            number, offset, length = _stretch(extent, start, stop)
            try:
                file = await self.file(number)
                data = file.read_at_hand(offset, length)
                if data is None:
                    data = await file.read(offset, length)
            except StorageError:
                break
            if not _decode_into(bodies, data, ledger_id, extent, start, stop):
                break
        return bodies

    def extent_at_hand(self, ledger_id: int, extent: Extent) -> list[memoryview] | None:
        """All bodies of the extent without waiting, where its files are open and the system has them in memory."""
        bodies: list[memoryview] = []
        for start, stop in stretches(extent.locations, extent.body_bytes, most=READ_BYTES):
            number, offset, length = _stretch(extent, start, stop)
            file = self._open.get(number)
            data = None if file is None else file.read_at_hand(offset, length)
            if data is None or not _decode_into(bodies, data, ledger_id, extent, start, stop):
                return None
        return bodies

    def at_hand(self, ledger_id: int, place: Place) -> memoryview | None:
        """`extent_at_hand` for one entry."""
        _, location, body_bytes = place
        file = self._open.get(location >> OFFSET_BITS)
        data = None if file is None else file.read_at_hand(location & OFFSET_MASK, ENTRY_HEADER_BYTES + body_bytes)
        return None if data is None else sound_body(memoryview(data), ledger_id, place.entry_id)

    async def close(self) -> None:
        for file in self._open.values():
            await file.close()
        self._open.clear()

    async def file(self, number: int, *, create: bool = False) -> DiskFile:
        """The open file. Whoever gets it begins to use it before anything else runs, and `close` waits for what runs."""
        file = self._open.get(number)
        if file is None:
            async with self._opening:
                file = self._open.get(number)
                if file is None:
                    while len(self._open) >= self._open_files:
                        _, oldest = self._open.popitem(last=False)
                        await oldest.close()
                    file = await self._opened(number, create=create)
                    self._open[number] = file
        self._open.move_to_end(number)
        return file

    async def _opened(self, number: int, *, create: bool) -> DiskFile:
        file = await self._disk.open(file_name(number), create=create, bulk=True)
        if not create:
            try:
                name = self._disk.describe(file_name(number))
                page = await file.read(0, PAGE_BYTES)
                check_file_header(page, file_number=number, bookie_id=self.bookie_id, name=name)
            except StorageError:
                await file.close()
                raise
        return file


def _stretch(extent: Extent, start: int, stop: int) -> tuple[int, int, int]:
    """File number, offset and length of some neighbours."""
    location = extent.locations[start]
    number, offset = unpack_location(location)
    return number, offset, extent.locations[stop - 1] + ENTRY_HEADER_BYTES + extent.body_bytes[stop - 1] - location


def _decode_into(bodies: list[memoryview], data: Buffer, ledger_id: int, extent: Extent, start: int, stop: int) -> bool:
    """Appends the bodies of a stretch; whether all of them are sound."""
    locations, body_bytes = extent.locations[start:stop], extent.body_bytes[start:stop]
    found = decode_run(memoryview(data), locations[0], ledger_id, extent.first + start, locations, body_bytes)
    bodies += found
    return len(found) == stop - start
