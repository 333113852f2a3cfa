"""Bytes of a journal segment, and what a segment that was found means. Pure.

All integers are little endian. A segment is a file of fixed size, zero-filled once and then recycled:

    segment header, one page of 4096 B
    offset  size  field
    0       4     magic "BKJ1"
    4       4     crc32c of bytes 8-63
    8       4     format version, 1
    12      4     generation: the number of the segment, from 1, never used twice
    16      8     segment bytes, the size of the file
    24      16    bookie id, as bytes: a segment of another bookie is refused
    40      4     salt: the start value of every crc below, random for each generation
    44      20    zero

    then groups, each at a multiple of 4096 B and padded with zeros to the next one; a group is one durable write

    group header, 32 B
    0       4     magic "BKG1"
    4       4     crc32c of bytes 8-31, from the salt
    8       4     generation of the segment
    12      4     number of records
    16      8     group number: one more than that of the group before it, also across segments
    24      8     bytes of header and records, without the padding

    record, 16 B and its body
    0       4     crc32c of bytes 4-15 and the body, from the salt
    4       4     bytes of the body
    8       4     generation of the segment
    12      1     kind
    13      3     zero

    | kind | body |
    |---|---|
    | 1 ENTRY  | a BookKeeper entry body: ledger i64 big endian, entry i64 big endian, … |
    | 2 LEDGER | ledger i64, flags u8 (1 validated: its metadata named this bookie), zero 3 B, master key 20 B |
    | 3 FENCE  | ledger i64 |
    | 4 TOMBSTONE | ledger i64, day u32 (since 1970, UTC) on which it was deleted: as if it had never been here, and never again |
    | 5 LAC | an explicit LAC as its writer sent it: ledger i64 big endian, LAC i64 big endian, digest |
    | 6 EMPTIED | ledger i64: its entries are others' business; it is fenced |
    | 7 REPLACED | an entry body as of 1, of an entry whose stored copy is damaged: this one counts instead |
    | 8 HOLD | ledger i64, version i64: no reading of its metadata at this version or before is a reason to drop its entries |

What stale bytes of an earlier use look like: generation and salt differ, so their checksums fail. The salt never leaves
the disk: nobody can send a body that looks like a group of a segment to come.

**The end.** A group is written only after the one before it is durable, so a crash damages the last group alone, and nothing in
it was acknowledged. Hence, at the first place that is no good group: if a later group of this generation exists, here or in the
next segment, the place is *corrupt*: it held acknowledged records. Else it is the *torn* or empty end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import repeat
from struct import Struct
from typing import Any, Final, NamedTuple

import crc32c as _crc32c

from boki_common.crc_shift import shifted
from boki_common.errors import CorruptData, VersionMismatch
from boki_common.runtime.ports import Buffer

REMEDY: Final = (
    "start with --salvage (`boki dev`: with BOKI_BOOKIE_SALVAGE=true): what can be read is served, and for the rest the bookie "
    "answers unknown until it is repaired. Put back no older copy"
)
"""What a person does about a damaged directory: the end of messages."""
PAGE_BYTES: Final = 4_096
FORMAT_VERSION: Final = 1

_SEGMENT_MAGIC: Final = int.from_bytes(b"BKJ1", "little")
_GROUP_MAGIC: Final = int.from_bytes(b"BKG1", "little")
_SEGMENT: Final = Struct("<IIQ16sI20x")
_GROUP: Final = Struct("<IIQQ")
_RECORD: Final = Struct("<IIB3x")
_PREFIX: Final = Struct("<II")
_CRC: Final = Struct("<I")
_LEDGER_BODY: Final = Struct("<qB3x20s")
_LEDGER_ID_BODY: Final = Struct("<q")
_HOLD_BODY: Final = Struct("<qq")
_TOMBSTONE_BODY: Final = Struct("<qI")
_ENTRY_IDS: Final = Struct(">qq")

_SEGMENT_USED: Final = _PREFIX.size + _SEGMENT.size
GROUP_HEADER_BYTES: Final = _PREFIX.size + _GROUP.size
RECORD_HEADER_BYTES: Final = _CRC.size + _RECORD.size
_ALONE: Final = Struct(f"<II{_GROUP.size}sI{_RECORD.size}s")
"""What is before the body of a group of one record."""
SEGMENT_OVERHEAD_BYTES: Final = PAGE_BYTES + GROUP_HEADER_BYTES
"""What a segment needs besides the records of its only group."""
JOINED_BODY_BYTES: Final = 8_192
"""On average, up to which bodies of a group are copied into one buffer: cheaper than to hand each to the system."""
NO_SUMS: Final[Mapping[int, int]] = {}
_ZEROS: Final = bytes(PAGE_BYTES)
_VALIDATED: Final = 1

crc32c = _crc32c.crc32c


def other_version(name: str, what: str, expected: int, found: object) -> VersionMismatch:
    """Of a file that another Boki wrote."""
    return VersionMismatch(
        f"{name}: expected {what} version {expected}, found {found}: start the Boki that wrote it",
        path=name,
        expected=expected,
        found=found,
    )


class RecordKind(IntEnum):
    """What a record's body is."""

    ENTRY = 1
    LEDGER = 2
    FENCE = 3
    TOMBSTONE = 4
    LAC = 5
    EMPTIED = 6
    REPLACED = 7
    HOLD = 8


class SegmentHeader(NamedTuple):
    """The first page of a segment."""

    generation: int
    segment_bytes: int
    bookie_id: bytes
    salt: int


class Group(NamedTuple):
    """One group that is wholly there: its place and its records, in order."""

    number: int
    offset: int
    end: int
    """Offset of the page after it."""
    kinds: list[int]
    bodies: list[memoryview]


class SegmentEnd(NamedTuple):
    """Where the good groups of a segment stop."""

    offset: int
    next_number: int | None
    """Number of the group that belongs there; None when the segment holds no group, not even a torn one."""
    torn: bool
    """Whether bytes of an incomplete group lie at `offset`."""
    fault: str
    """What is wrong there, for a person; empty when nothing is."""


class LedgerRecord(NamedTuple):
    """Body of a LEDGER record."""

    ledger_id: int
    validated: bool
    master_key: bytes


# -- writing


def encode_segment_header(header: SegmentHeader) -> bytes:
    """One page."""
    used = _SEGMENT.pack(FORMAT_VERSION, *header)
    return (_PREFIX.pack(_SEGMENT_MAGIC, crc32c(used)) + used).ljust(PAGE_BYTES, b"\0")


def encode_group(
    header: SegmentHeader,
    number: int,
    kinds: Sequence[int],
    bodies: Sequence[Buffer],
    sums: Mapping[int, int] = NO_SUMS,
) -> tuple[list[Buffer], int]:
    """The buffers of one group, padded, and their length: one buffer where bodies are small, else bodies are not copied.

    Every entry that a bookie takes goes through here, or alone: columns, and no statement of ours per record, unless there are
    `sums`: crc32c of some bodies, by their place, which are not read then.
    """
    generation, salt = header.generation, header.salt
    count, lengths = len(bodies), list(map(len, bodies))
    crcs: Iterable[int]
    if sums:
        heads = list(map(_RECORD.pack, lengths, repeat(generation), kinds))
        crcs = [
            _crc_of(head, salt, body, sums.get(place))
            for place, (head, body) in enumerate(zip(heads, bodies, strict=True))
        ]
    elif lengths and lengths.count(lengths[0]) == count == kinds.count(kinds[0]):  # as entries of one writer are
        head = _RECORD.pack(lengths[0], generation, kinds[0])
        heads = [head] * count
        crcs = map(crc32c, bodies, repeat(crc32c(head, salt)))
    else:
        heads = list(map(_RECORD.pack, lengths, repeat(generation), kinds))
        crcs = map(crc32c, bodies, map(crc32c, heads, repeat(salt)))
    size = GROUP_HEADER_BYTES + RECORD_HEADER_BYTES * count + sum(lengths)
    group = _GROUP.pack(generation, count, number, size)
    padding = -size % PAGE_BYTES
    buffers: list[Buffer] = [b""] * (3 * count + 2)
    buffers[0] = _PREFIX.pack(_GROUP_MAGIC, crc32c(group, salt)) + group
    buffers[1:-1:3] = map(_CRC.pack, crcs)
    buffers[2:-1:3] = heads
    buffers[3:-1:3] = bodies
    buffers[-1] = _ZEROS[:padding]
    return [b"".join(buffers)] if size <= JOINED_BODY_BYTES * count else buffers, size + padding


def _crc_of(head: bytes, salt: int, body: Buffer, known: int | None) -> int:
    """The checksum of a record; `known` is crc32c of the body."""
    start: int = crc32c(head, salt)
    if known is None:
        return crc32c(body, start)
    return known ^ shifted(start, len(body))


def encode_single(
    header: SegmentHeader, number: int, kind: int, body: Buffer, sums: Mapping[int, int] = NO_SUMS
) -> tuple[list[Buffer], int]:
    """`encode_group` for one record, as those of an idle bookie are, in a third of the calls."""
    generation, salt, length = header.generation, header.salt, len(body)
    size = _ALONE.size + length
    padding = -size % PAGE_BYTES
    group = _GROUP.pack(generation, 1, number, size)
    head = _RECORD.pack(length, generation, kind)
    crc = _crc_of(head, salt, body, sums[0]) if sums else crc32c(body, crc32c(head, salt))
    parts = _ALONE.pack(_GROUP_MAGIC, crc32c(group, salt), group, crc, head), body, _ZEROS[:padding]
    return [b"".join(parts)] if size <= JOINED_BODY_BYTES else list(parts), size + padding


def encode_ledger(record: LedgerRecord) -> bytes:
    return _LEDGER_BODY.pack(record.ledger_id, _VALIDATED if record.validated else 0, record.master_key)


def encode_ledger_id(ledger_id: int) -> bytes:
    """Of a FENCE or EMPTIED record."""
    return _LEDGER_ID_BODY.pack(ledger_id)


def encode_hold(ledger_id: int, version: int) -> bytes:
    return _HOLD_BODY.pack(ledger_id, version)


def encode_tombstone(ledger_id: int, day: int) -> bytes:
    return _TOMBSTONE_BODY.pack(ledger_id, day)


# -- reading


def decode_ledger(body: memoryview) -> LedgerRecord:
    ledger_id, flags, key = _fields(_LEDGER_BODY, body, "LEDGER")
    return LedgerRecord(ledger_id, bool(flags & _VALIDATED), key)


def decode_ledger_id(body: memoryview) -> int:
    """The ledger of a FENCE or EMPTIED record."""
    (ledger_id,) = _fields(_LEDGER_ID_BODY, body, "FENCE or EMPTIED")
    return int(ledger_id)


def decode_hold(body: memoryview) -> tuple[int, int]:
    """Ledger and version."""
    ledger_id, version = _fields(_HOLD_BODY, body, "HOLD")
    return ledger_id, version


def decode_tombstone(body: memoryview) -> tuple[int, int]:
    """Ledger and day."""
    ledger_id, day = _fields(_TOMBSTONE_BODY, body, "TOMBSTONE")
    return ledger_id, day


def entry_ids(body: Buffer) -> tuple[int, int]:
    """Ledger and entry of an ENTRY or REPLACED record; ledger and LAC of a LAC record."""
    ledger_id, entry_id = _fields(_ENTRY_IDS, body[: _ENTRY_IDS.size], "ENTRY, LAC or REPLACED")
    return ledger_id, entry_id


def _fields(layout: Struct, body: Buffer, kind: str) -> tuple[Any, ...]:
    """Of a record whose checksum is right. Raises CorruptData: such a record was never written."""
    if len(body) != layout.size:
        raise CorruptData(f"a record {kind} of the journal has {len(body)} bytes, expected {layout.size}: {REMEDY}")
    return layout.unpack(body)


def decode_segment_header(page: Buffer, *, name: str) -> SegmentHeader:
    """Reads the first page of the file `name`. Raises CorruptData: no header, or damaged; VersionMismatch: written by another
    version of Boki."""
    if len(page) < _SEGMENT_USED:
        raise CorruptData(f"{name}: expected a journal segment, found a file of {len(page)} bytes", path=name, offset=0)
    magic, crc = _PREFIX.unpack_from(page)
    if magic != _SEGMENT_MAGIC:
        raise CorruptData(f"{name}: expected a journal segment, found another file at byte 0", path=name, offset=0)
    version = int.from_bytes(page[8:12], "little")
    if crc32c(page[_PREFIX.size : _SEGMENT_USED]) != crc:
        raise CorruptData(f"{name}: the segment header at byte 0 fails its checksum", path=name, offset=0)
    if version != FORMAT_VERSION:
        raise other_version(name, "journal", FORMAT_VERSION, version)
    _, generation, segment_bytes, bookie_id, salt = _SEGMENT.unpack_from(page, _PREFIX.size)
    return SegmentHeader(generation, segment_bytes, bookie_id, salt)


class SegmentScan:
    """Reads the groups of one segment, in order; after the last one `end` is how it stops.

    Args:
        data: the whole segment.
        header: the segment's header, decoded.
        name: for messages.
    """

    def __init__(self, data: memoryview, header: SegmentHeader, *, name: str) -> None:
        self._data = data
        self._header = header
        self._name = name
        self.end: SegmentEnd | None = None

    def groups(self) -> Iterator[Group]:
        """Raises CorruptData where acknowledged records are damaged or missing inside this segment."""
        offset, last_page = PAGE_BYTES, len(self._data) - GROUP_HEADER_BYTES
        expected: int | None = None
        while offset <= last_page:
            head = self._group_header(offset)
            if head is None:
                self._stop(offset, expected, torn=False, fault="no group begins there", search=offset)
                return
            records, number, size = head
            if expected is not None and number != expected:
                raise self._corrupt(offset, f"expected group {expected}, found group {number}")
            end = offset + size + -size % PAGE_BYTES
            if end > len(self._data):
                raise self._corrupt(offset, f"group {number} claims {size} bytes, more than its segment has")
            group = self._group(number, offset, end, records, size)
            if isinstance(group, str):
                self._stop(offset, number, torn=True, fault=group, search=end)
                return
            yield group
            offset, expected = end, number + 1
        self.end = SegmentEnd(offset, expected, torn=False, fault="")

    def readable_groups(self) -> Iterator[Group]:
        """Every group that is whole, also behind damage: for who takes what there is."""
        offset = PAGE_BYTES
        while offset <= len(self._data) - GROUP_HEADER_BYTES:
            group: Group | str = "none begins here"
            head = self._group_header(offset)
            if head is not None:
                records, number, size = head
                end = offset + size + -size % PAGE_BYTES
                if end <= len(self._data):
                    group = self._group(number, offset, end, records, size)
            if isinstance(group, Group):
                yield group
                offset = group.end
            else:
                offset += PAGE_BYTES

    def _stop(self, offset: int, expected: int | None, *, torn: bool, fault: str, search: int) -> None:
        later = self._later_group(search, expected)
        if later is not None:
            raise self._corrupt(offset, f"{fault}, yet group {later[0]} follows at byte {later[1]}")
        self.end = SegmentEnd(offset, expected, torn=torn, fault=fault)

    def _group_header(self, offset: int) -> tuple[int, int, int] | None:
        """Records, number and size of the group that begins at `offset`, if one of this generation does."""
        magic, crc = _PREFIX.unpack_from(self._data, offset)
        if magic != _GROUP_MAGIC:
            return None
        start = offset + _PREFIX.size
        if crc32c(self._data[start : start + _GROUP.size], self._header.salt) != crc:
            return None
        generation, records, number, size = _GROUP.unpack_from(self._data, start)
        return (records, number, size) if generation == self._header.generation else None

    def _later_group(self, offset: int, expected: int | None) -> tuple[int, int] | None:
        """The first group from `offset` on whose number shows that the place before it was durable once."""
        for place in range(offset, len(self._data) - GROUP_HEADER_BYTES + 1, PAGE_BYTES):
            head = self._group_header(place)
            if head is not None and (expected is None or head[1] > expected):
                return head[1], place
        return None

    def _group(self, number: int, offset: int, end: int, records: int, size: int) -> Group | str:
        """The records of a group, or what is wrong with it."""
        data, salt, generation = self._data, self._header.salt, self._header.generation
        unpack, unpack_crc, crc_of = _RECORD.unpack_from, _CRC.unpack_from, crc32c
        kinds: list[int] = []
        bodies: list[memoryview] = []
        at, stop = offset + GROUP_HEADER_BYTES, offset + size
        for _ in range(records):
            start = at + RECORD_HEADER_BYTES
            if start > stop:
                return f"group {number} ends inside a record header at byte {at}"
            length, found, kind = unpack(data, at + _CRC.size)
            body = data[start : start + length]
            if found != generation or start + length > stop:
                return f"no record of group {number} begins at byte {at}"
            if crc_of(body, crc_of(data[at + _CRC.size : start], salt)) != unpack_crc(data, at)[0]:
                return f"the record of group {number} at byte {at} fails its checksum"
            kinds.append(kind)
            bodies.append(body)
            at = start + length
        if at != stop:
            return f"group {number} has {stop - at} bytes too many at byte {at}"
        return Group(number, offset, end, kinds, bodies)

    def _corrupt(self, offset: int, what: str) -> CorruptData:
        return CorruptData(
            f"{self._name} at byte {offset}: {what}. The journal is damaged where acknowledged entries lie: {REMEDY}",
            path=self._name,
            offset=offset,
        )
