"""Bytes of the entry log, where entries live once they left the journal. Pure.

All integers are little endian. A file is a header page and then stored entries, one behind the other; every write ends
with zeros up to a multiple of 4096, so the next one begins on a page (a stored entry never begins with 8 zero bytes):

    file header, one page of 4096 B
    offset  size  field
    0       4     magic "BKE1"
    4       4     crc32c of bytes 8-31
    8       4     format version, 1
    12      4     number of the file, from 1
    16      16    bookie id

    stored entry, 24 B and its body
    0       4     crc32c of bytes 4-23 and the body
    4       4     bytes of the body
    8       8     ledger
    16      8     entry
    24      n     the body, as the client sent it

A *location* is one u64: file number in the upper 24 bits, offset of the stored entry in the lower 40. Bytes behind the end
that the last checkpoint names are leftovers of a checkpoint that did not finish; the next one overwrites them.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

import crc32c as _crc32c

from boki_bookie.formats.journal_format import other_version
from boki_common.crc_shift import shifted
from boki_common.errors import CorruptData
from boki_common.runtime.ports import Buffer

PAGE_BYTES: Final = 4_096
FORMAT_VERSION: Final = 1
OFFSET_BITS: Final = 40
OFFSET_MASK: Final = 2**OFFSET_BITS - 1
FILE_NUMBER_MAX: Final = 2**24 - 1

_MAGIC: Final = int.from_bytes(b"BKE1", "little")
_PREFIX: Final = Struct("<II")
_FILE: Final = Struct("<II16s")
_ENTRY: Final = Struct("<Iqq")
_CRC: Final = Struct("<I")
_STORED: Final = Struct("<IIqq")
"""Both of them: the whole header of an entry."""
ENTRY_HEADER_BYTES: Final = _CRC.size + _ENTRY.size
NO_SUMS: Final[Mapping[int, int]] = {}

crc32c = _crc32c.crc32c


class StoredEntry(NamedTuple):
    """An entry that was found without an index: places are relative to the bytes that were searched."""

    ledger_id: int
    entry_id: int
    start: int
    body_bytes: int
    end: int


def pack_location(file_number: int, offset: int) -> int:
    assert 0 < file_number <= FILE_NUMBER_MAX and 0 <= offset <= OFFSET_MASK, (file_number, offset)
    return file_number << OFFSET_BITS | offset


def unpack_location(location: int) -> tuple[int, int]:
    """File number and offset."""
    return location >> OFFSET_BITS, location & OFFSET_MASK


def encode_file_header(file_number: int, bookie_id: bytes) -> bytes:
    """One page."""
    used = _FILE.pack(FORMAT_VERSION, file_number, bookie_id)
    return (_PREFIX.pack(_MAGIC, crc32c(used)) + used).ljust(PAGE_BYTES, b"\0")


def check_file_header(page: Buffer, *, file_number: int, bookie_id: bytes, name: str) -> None:
    """Raises CorruptData for another file, another bookie's, or a damaged header; VersionMismatch."""
    size = _PREFIX.size + _FILE.size
    if len(page) < size or _PREFIX.unpack_from(page)[0] != _MAGIC:
        raise CorruptData(f"{name}: expected an entry log, found another file at byte 0", path=name, offset=0)
    if crc32c(page[_PREFIX.size : size]) != _PREFIX.unpack_from(page)[1]:
        raise CorruptData(f"{name}: the header at byte 0 fails its checksum", path=name, offset=0)
    version, found_number, found_id = _FILE.unpack_from(page, _PREFIX.size)
    if version != FORMAT_VERSION:
        raise other_version(name, "entry log", FORMAT_VERSION, version)
    if (found_number, found_id) != (file_number, bookie_id):
        raise CorruptData(
            f"{name}: expected file {file_number} of bookie {bookie_id.hex()}, "
            f"found file {found_number} of bookie {found_id.hex()}: it was copied from elsewhere",
            path=name,
            offset=0,
        )


def encode_entries(
    ledger_id: int,
    bodies: Mapping[int, Buffer],
    order: Sequence[int],
    locations: array[int],
    buffers: list[Buffer],
    file_number: int,
    offset: int,
    stop: int,
    sums: Mapping[int, int] = NO_SUMS,
) -> int:
    """Goes on with the entries of `order` from where `locations` end, until it has reached the offset `stop`.

    Appends their locations and what is to be written; returns the offset behind it. One loop, without a call of ours per
    entry: every entry that a bookie takes goes through here. Bodies whose crc32c is in `sums` are not read.
    """
    pack_head, pack_crc, crc_of = _ENTRY.pack, _CRC.pack, crc32c
    add, locate = buffers.append, locations.append
    location = pack_location(file_number, offset)
    last = location + stop - offset
    for entry_id in itertools.islice(order, len(locations), None):
        body = bodies[entry_id]
        length = len(body)
        head = pack_head(length, ledger_id, entry_id)
        crc = crc_of(body, crc_of(head)) if entry_id not in sums else sums[entry_id] ^ shifted(crc_of(head), length)
        add(pack_crc(crc) + head)
        add(body)
        locate(location)
        location += ENTRY_HEADER_BYTES + length
        if location >= last:
            break
    return location - pack_location(file_number, 0)


def decode_entry(stored: memoryview, ledger_id: int, entry_id: int, *, name: str, offset: int) -> memoryview:
    """The body of a stored entry. Raises CorruptData: it fails its checksum, is cut short, or is another entry. Never mistaken
    for an absent one."""
    if len(stored) >= ENTRY_HEADER_BYTES:
        length, found_ledger, found_entry = _ENTRY.unpack_from(stored, _CRC.size)
        body = stored[ENTRY_HEADER_BYTES : ENTRY_HEADER_BYTES + length]
        crc = crc32c(body, crc32c(stored[_CRC.size : ENTRY_HEADER_BYTES]))
        whole = len(body) == length and crc == _CRC.unpack_from(stored)[0]
        if whole and (found_ledger, found_entry) == (ledger_id, entry_id):
            return body
    raise CorruptData(
        f"{name} at byte {offset}: expected entry {entry_id} of ledger {ledger_id}, found damaged bytes; "
        "other bookies of the ledger have copies",
        path=name,
        offset=offset,
        ledger_id=ledger_id,
        entry_id=entry_id,
    )


def sound_body(stored: memoryview, ledger_id: int, entry_id: int) -> memoryview | None:
    """The body of a stored entry that takes up all of `stored`; None where `decode_entry` says what is wrong."""
    crc, length, found_ledger, found_entry = _STORED.unpack_from(stored)
    if (found_entry, found_ledger, length) != (entry_id, ledger_id, len(stored) - ENTRY_HEADER_BYTES):
        return None
    return stored[ENTRY_HEADER_BYTES:] if crc32c(stored[_CRC.size :]) == crc else None


def decode_run(
    stored: memoryview, base: int, ledger_id: int, first: int, locations: Sequence[int], body_bytes: Sequence[int]
) -> list[memoryview]:
    """Bodies of the entries from `first` on, out of the stretch of a file that begins at the location `base`.

    Ends before the first that fails its checksum, is of another length, or another entry: `decode_entry` says what it is.
    """
    unpack, crc_of, end, entry_id = _STORED.unpack_from, crc32c, len(stored), first
    bodies: list[memoryview] = []
    for location, size in zip(locations, body_bytes, strict=True):
        at = location - base
        start = at + ENTRY_HEADER_BYTES
        stop = start + size
        if at < 0 or stop > end:
            break
        crc, length, found_ledger, found_entry = unpack(stored, at)
        if length != size or found_entry != entry_id or found_ledger != ledger_id:
            break
        if crc_of(stored[at + 4 : stop]) != crc:
            break
        bodies.append(stored[start:stop])
        entry_id += 1
    return bodies


def stretches(locations: Sequence[int], body_bytes: Sequence[int], *, most: int) -> Iterator[tuple[int, int]]:
    """How to read entries with few reads: index ranges of neighbours in one file, each at most `most` bytes or one entry.

    Halves what does not lie close together and joins what does, so the entries between two gaps are not looked at one by one.
    """

    def close_together(start: int, stop: int) -> bool:
        span = locations[stop - 1] + ENTRY_HEADER_BYTES + body_bytes[stop - 1] - locations[start]
        wanted = sum(body_bytes[start:stop]) + ENTRY_HEADER_BYTES * (stop - start)
        return 0 < span <= min(wanted + PAGE_BYTES, most)

    pending = [(0, len(locations))] if locations else []
    found: tuple[int, int] | None = None
    while pending:
        start, stop = pending.pop()
        if stop - start > 1 and not close_together(start, stop):
            middle = (start + stop) // 2
            pending += ((middle, stop), (start, middle))
        elif found is not None and close_together(found[0], stop):
            found = found[0], stop
        else:
            if found is not None:
                yield found
            found = start, stop
    if found is not None:
        yield found


def stored_entries(data: memoryview, *, base: int, limit: int) -> Iterator[StoredEntry]:
    """Every sound entry that begins below `limit`, in a stretch that begins at offset `base` of its file.

    Behind a damaged one it tries the place where that one claims to end, and then the next page: every write begins there.
    """
    at = 0
    while at < limit and at + ENTRY_HEADER_BYTES <= len(data):
        end = _claimed_end(data, at)
        if end is not None and _is_sound(data, at, end):
            _, ledger_id, entry_id = _ENTRY.unpack_from(data, at + _CRC.size)
            yield StoredEntry(ledger_id, entry_id, at, end - at - ENTRY_HEADER_BYTES, end)
            at = end
            continue
        after = None if end is None else _claimed_end(data, end)
        if end is not None and after is not None and _is_sound(data, end, after):
            at = end
        else:
            at += PAGE_BYTES - (base + at) % PAGE_BYTES


def _claimed_end(data: memoryview, at: int) -> int | None:
    """Where the entry that begins at `at` says that it ends; None when none can begin there."""
    if at + ENTRY_HEADER_BYTES > len(data) or not any(data[at : at + 8]):
        return None
    end: int = at + ENTRY_HEADER_BYTES + _ENTRY.unpack_from(data, at + _CRC.size)[0]
    return end if end <= len(data) else None


def _is_sound(data: memoryview, at: int, end: int) -> bool:
    return bool(crc32c(data[at + _CRC.size : end]) == _CRC.unpack_from(data, at)[0])
