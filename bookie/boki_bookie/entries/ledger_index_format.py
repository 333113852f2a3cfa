"""Bytes of the ledger index on disk and of the checkpoint mark. Pure.

All integers are little endian. The index file is a sequence of blocks, appended by checkpoints; each holds what changed of
some ledgers. Applying all blocks in order gives the index. When a file holds much more than the index needs, a checkpoint
begins a new file with blocks of everything (so the cost of a checkpoint follows what changed, also with 100,000 ledgers).

    block header, 32 B
    offset  size  field
    0       4     magic "BKI1"
    4       4     crc32c of bytes 8-31 and the ledgers; from version 2 on it starts with that of bookie id and file number
                  (u64), so that a block of another bookie, or of another file, is no block of this one
    8       4     format version, 3; 1 and 2, which know no holds, are read
    12      4     number of ledgers
    16      8     bytes of the ledgers
    24      8     number of the checkpoint

    ledger, 40 B and its columns, padded with zeros to 8 B
    0       8     ledger
    8       4     number of entries
    12      1     flags: 1 fenced, 2 validated, 4 emptied: what earlier blocks hold of its entries is void,
                  8 deleted: see below
    13      1     bytes of the explicit LAC, 0 for none
    14      2     zero
    16      20    master key
    36      4     of a deleted ledger: the day (since 1970, UTC) on which it was; else one more than its hold, 0 for none
    40      8 n   entries i64, ascending, then locations u64 [n], then bytes of the bodies u32 [n], then
                  the body of the explicit LAC

    A deleted ledger has no columns; its master key is zero but for the first 8 bytes: the last ledger of a run of deleted
    ones that begins with this. What earlier blocks hold of them is void. In what one checkpoint writes, ledgers that were
    deleted or emptied come first: what follows was there afterwards.

    checkpoint mark: the file CHECKPOINT, replaced as a whole
    0       4     magic "BKC1"
    4       4     crc32c of the rest
    8       4     format version, 1
    12      4     generation of the journal segment where replay begins; it exists
    16      8     number of the first journal group to replay
    24      8     number of the checkpoint
    32      16    bookie id
    48      8     number of the index file
    56      8     bytes of it that count
    64      8     number of the entry log file that is written
    72      8     bytes of it that count
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import crc32c as _crc32c

from boki_bookie.entries.ledger_index import Columns, Ledger
from boki_bookie.entries.ledger_index import LedgerUpdate as LedgerUpdate
from boki_bookie.entries.tombstones import Run
from boki_bookie.formats.journal_format import REMEDY, other_version
from boki_common.errors import CorruptData
from boki_common.runtime.ports import Buffer

FORMAT_VERSION: Final = 3
NO_HOLDS_VERSION: Final = 2
UNBOUND_VERSION: Final = 1
"""Its checksums do not say whose file it is."""
MARK_VERSION: Final = 1
BLOCK_BYTES: Final = 1024 * 1024
"""A block is closed at this size; one ledger is never split."""

_INDEX_MAGIC: Final = int.from_bytes(b"BKI1", "little")
_MARK_MAGIC: Final = int.from_bytes(b"BKC1", "little")
_PREFIX: Final = Struct("<II")
_BLOCK: Final = Struct("<IIQQ")
_LEDGER: Final = Struct("<qIBB2x20sI")
_MARK: Final = Struct("<IIQQ16sQQQQ")
_FENCED: Final = 1
_VALIDATED: Final = 2
_EMPTIED: Final = 4
_DELETED: Final = 8
_ENTRY_COLUMN_BYTES: Final = 20

assert sys.byteorder == "little", "columns are written as they lie in memory: Boki runs on little-endian machines"
BLOCK_HEADER_BYTES: Final = _PREFIX.size + _BLOCK.size


class CheckpointMark(NamedTuple):
    """Everything before this is in the entry log and the index; see the module's table."""

    generation: int
    group: int
    number: int
    bookie_id: bytes
    index_file: int
    index_bytes: int
    entry_file: int
    entry_bytes: int


def encoded_ledger_bytes(entries: int, lac_bytes: int = 0) -> int:
    """Bytes of one ledger in a block."""
    size = _LEDGER.size + _ENTRY_COLUMN_BYTES * entries + lac_bytes
    return size + -size % 8


def owner_of(bookie_id: bytes, index_file: int) -> int:
    """What the checksums of an index file start with: whose file it is."""
    return _crc32c.crc32c(bookie_id + index_file.to_bytes(8, "little"))


def encode_blocks(
    ledgers: Iterable[tuple[Ledger, Columns]], checkpoint: int, *, owner: int, removals: Sequence[Run | Ledger] = ()
) -> Iterator[bytes]:
    """Blocks of about BLOCK_BYTES.

    Args:
        ledgers: flags as they have them now, and the columns given.
        checkpoint: its number.
        owner: see `owner_of`.
        removals: ledgers that were deleted, and those that were emptied; they come before `ledgers`.
    """
    parts: list[bytes] = []
    size = count = 0
    gone = (_encode_removal(removal) for removal in removals)
    present = (_encode_ledger(ledger, columns) for ledger, columns in ledgers)
    for encoded in itertools.chain(gone, present):
        parts.append(encoded)
        size += len(encoded)
        count += 1
        if size >= BLOCK_BYTES:
            yield _block(parts, count, size, checkpoint, owner)
            parts, size, count = [], 0, 0
    if count:
        yield _block(parts, count, size, checkpoint, owner)


def _encode_ledger(ledger: Ledger, columns: Columns) -> bytes:
    entries, locations, body_bytes = columns
    flags = (_FENCED if ledger.fenced else 0) | (_VALIDATED if ledger.validated else 0)
    lac = ledger.explicit_lac
    head = _LEDGER.pack(ledger.ledger_id, len(entries), flags, len(lac), ledger.master_key, ledger.hold + 1)
    body = b"".join((head, _column("q", entries), _column("Q", locations), _column("I", body_bytes), lac))
    return body.ljust(encoded_ledger_bytes(len(entries), len(lac)), b"\0")


def _encode_removal(removal: Run | Ledger) -> bytes:
    if isinstance(removal, Run):
        return _LEDGER.pack(removal.first, 0, _DELETED, 0, removal.last.to_bytes(8, "little"), removal.day)
    flags = _EMPTIED | _FENCED
    return _LEDGER.pack(removal.ledger_id, 0, flags, 0, removal.master_key, 0)


def _column(kind: str, values: Sequence[int]) -> bytes:
    return (values if isinstance(values, array) else array(kind, values)).tobytes()


def _read_column(kind: str, data: memoryview) -> array[int]:
    column: array[int] = array(kind)
    column.frombytes(data)
    return column


def _block(parts: Sequence[bytes], count: int, size: int, checkpoint: int, owner: int) -> bytes:
    head = _BLOCK.pack(FORMAT_VERSION, count, size, checkpoint)
    crc = _crc32c.crc32c(head, owner)
    for part in parts:
        crc = _crc32c.crc32c(part, crc)
    return b"".join((_PREFIX.pack(_INDEX_MAGIC, crc), head, *parts))


def decode_blocks(data: memoryview, *, owner: int, name: str) -> Iterator[LedgerUpdate | Run]:
    """All updates of an index file, cut to the bytes that count; a Run of ledgers was deleted. `owner` is `owner_of`. Raises
    CorruptData: naming file and offset; VersionMismatch: written by another version of Boki."""
    offset = 0
    while offset < len(data):
        body = _checked_block(data, offset, owner, name)
        yield from _decode_ledgers(body, offset + BLOCK_HEADER_BYTES, name)
        offset += BLOCK_HEADER_BYTES + len(body)


def _checked_block(data: memoryview, offset: int, owner: int, name: str) -> memoryview:
    if len(data) - offset < BLOCK_HEADER_BYTES:
        raise _damaged(name, offset, f"expected a block, found {len(data) - offset} bytes")
    magic, crc = _PREFIX.unpack_from(data, offset)
    version, _, size, _ = _BLOCK.unpack_from(data, offset + _PREFIX.size)
    if magic != _INDEX_MAGIC:
        raise _damaged(name, offset, "expected a block, found other bytes")
    end = offset + BLOCK_HEADER_BYTES + size
    start = 0 if version == UNBOUND_VERSION else owner
    if end > len(data) or _crc32c.crc32c(data[offset + _PREFIX.size : end], start) != crc:
        raise _damaged(name, offset, "a block fails its checksum: it is damaged, or of another file or bookie")
    if version not in (FORMAT_VERSION, NO_HOLDS_VERSION, UNBOUND_VERSION):
        raise other_version(name, "ledger index", FORMAT_VERSION, version)
    return data[offset + BLOCK_HEADER_BYTES : end]


def _decode_ledgers(body: memoryview, start: int, name: str) -> Iterator[LedgerUpdate | Run]:
    at = 0
    while at < len(body):
        if len(body) - at < _LEDGER.size:
            raise _damaged(name, start + at, "a block ends inside a ledger")
        ledger_id, count, flags, lac_bytes, key, day = _LEDGER.unpack_from(body, at)
        end = at + encoded_ledger_bytes(count, lac_bytes)
        if end > len(body):
            raise _damaged(name, start + at, f"ledger {ledger_id} claims {count} entries, more than its block has")
        if flags & _DELETED:
            yield Run(ledger_id, int.from_bytes(key[:8], "little"), day)
            at = end
            continue
        entries_at = at + _LEDGER.size
        locations_at = entries_at + 8 * count
        bytes_at = locations_at + 8 * count
        lac_at = bytes_at + 4 * count
        yield LedgerUpdate(
            ledger_id,
            bool(flags & _FENCED),
            bool(flags & _VALIDATED),
            key,
            _read_column("q", body[entries_at:locations_at]),
            _read_column("Q", body[locations_at:bytes_at]),
            _read_column("I", body[bytes_at:lac_at]),
            bytes(body[lac_at : lac_at + lac_bytes]),
            bool(flags & _EMPTIED),
            day - 1,
        )
        at = end


def encode_mark(mark: CheckpointMark) -> bytes:
    used = _MARK.pack(MARK_VERSION, *mark)
    return _PREFIX.pack(_MARK_MAGIC, _crc32c.crc32c(used)) + used


def decode_mark(data: Buffer, *, name: str) -> CheckpointMark:
    """Raises CorruptData, VersionMismatch."""
    if len(data) != _PREFIX.size + _MARK.size or _PREFIX.unpack_from(data)[0] != _MARK_MAGIC:
        raise _damaged(name, 0, f"expected a checkpoint mark of {_PREFIX.size + _MARK.size} bytes, found another file")
    if _crc32c.crc32c(data[_PREFIX.size :]) != _PREFIX.unpack_from(data)[1]:
        raise _damaged(name, 0, "the checkpoint mark fails its checksum")
    version, *fields = _MARK.unpack_from(data, _PREFIX.size)
    if version != MARK_VERSION:
        raise other_version(name, "checkpoint", MARK_VERSION, version)
    return CheckpointMark(*fields)


def _damaged(name: str, offset: int, what: str) -> CorruptData:
    return CorruptData(
        f"{name} at byte {offset}: {what}. The bookie no longer knows what it stores: {REMEDY}",
        path=name,
        offset=offset,
    )
