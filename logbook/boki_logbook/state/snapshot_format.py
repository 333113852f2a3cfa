"""The decision state of an engine as chunks, each an entry of a snapshot ledger; and back. Pure.

    chunk, little-endian
    offset  size
    0       4     magic "BKSN"
    4       1     version: 2, or 1 where no writer was forgotten, so that who reads no other goes on until one is
    5       3     0
    8       4     number of the chunk, from 0
    12      4     bytes of the piece before compression, 1 … CHUNK_BYTES
    16      4     crc32c of bytes 0 … 15 and of the frame
    20      …     the piece as one zstd frame

    the pieces, one after another
    u32           bytes of the head
    head          msgpack: positions of the logs, scalars of the terms, items of each column (`_Head`)
    columns       in the order of `_columns`, as they lie in memory; u64 as differences to the item before, which are small

Rules:
- Both sides go on in steps of one chunk, so that whoever drives them can let others have their turn in between.
- What is declared is compared with the size that the caller knows before memory is taken for it.
- Loading takes the columns once, which the state goes on with, a copy of the places of entries and of writers, and what it takes
  to look through one run: less than twice what the state takes afterwards.
- A snapshot is whole or refused: CorruptData says what does not fit, VersionMismatch that it is newer than this program.

It does not know where chunks are kept, nor which snapshot is the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import zstandard
from crc32c import crc32c
from numpy.typing import NDArray

from boki_common import limits
from boki_common.errors import DECODE_FAULTS, CorruptData, VersionMismatch
from boki_common.runtime.ports import Buffer
from boki_logbook.index.places import Counts, LostEntries, PassedOver
from boki_logbook.index.sorted_run import NO_ROWS
from boki_logbook.index.trim_marks import MarkColumns
from boki_logbook.state.state_snapshot import (
    NO_PAIRS,
    PairColumns,
    RowColumns,
    ShardColumns,
    StateSnapshot,
    TermColumns,
    WriterColumns,
)

Column = NDArray[Any]

VERSION: Final = 2
_VERSION_1: Final = 1
"""The version of a snapshot without floors of writers, whose columns come last."""
MAGIC: Final = b"BKSN"
CHUNK_BYTES: Final = limits.MIB
"""Bytes of a piece before compression, at most. Compressing one takes some milliseconds."""
HEAD_BYTES: Final = 256 * limits.MIB
"""A head may not be longer: some hundred bytes per term."""
LEVEL: Final = 1

_CHUNK: Final = Struct("<4sB3xIII")
_COVERED: Final = _CHUNK.size - 4
_LENGTH: Final = Struct("<I")
_SLICE_ITEMS: Final = CHUNK_BYTES // 8
_SUM_ITEMS: Final = limits.MIB
_U32_MAX: Final = 2**32 - 1
_I63_MAX: Final = 2**63 - 1

_U64, _I64, _U32, _U8 = np.dtype("<u8"), np.dtype("<i8"), np.dtype("<u4"), np.dtype("u1")
_TERM: Final = (_U64, _U32, _U64, _I64, _U64, _U64, _U64)
_ROWS: Final = (_U64, _U64, _U32, _U64, _U8)
_REST: Final = (
    _U64,  # once every book: written without items, and not looked at
    *(_U64, _U64, _U64),  # marks
    *(_U64, _U64),  # marks of books
    *(_U64, _U64),  # floors
    *(_U64, _U8, _U64, _U64, _U8, _I64, _U32, _U32),  # writers: book, id, last, floor, named, time, answers, checksums
    *(_U64, _U64, _U64, _U8, _U32),  # answers: first, count, seqnum, verdict, pairs
    *(_U64, _U64, _U32),  # pairs: tag, newest; checksums
)
_FLOORS: Final = (_U64, _U64)
"""Floors of writers: slot, birth."""
_WRITER_IDS: Final = 16


class LogPoint(NamedTuple):
    """How far a log is applied: what the indexer and its follower go on from.

    Attributes:
        term, entry: the metalog position. `ended`: the term is over and applied to its end.
        covered: the last seqnum that a book of the log may have, 0 if none.
        end_pos, time_ms, next_shard, shards: the progress vector after the last entry; shards as (number, records_end,
            entries_end), ascending.
    """

    log: int
    term: int
    entry: int
    ended: bool
    covered: int
    end_pos: int
    time_ms: int
    next_shard: int
    shards: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The decision state at one position of every log. `ended`: each term applied to its end, and what its log covered
    then; ascending."""

    state: StateSnapshot
    logs: tuple[LogPoint, ...]
    ended: tuple[tuple[int, int], ...]


class _Term(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """`TermColumns` without its columns."""

    term: int
    log: int
    slots: tuple[tuple[int, int], ...]
    end_pos: int
    live: int
    last_time_ms: int
    over: bool
    shards: tuple[tuple[int, int, str, int, int, bool, tuple[int, int, int, int, int]], ...]
    lost: tuple[tuple[int, int, int, bytes, bool], ...]
    passed: tuple[tuple[int, int, int, int, int], ...]


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is no column. `counts`: items of each column, in their order."""

    version: int
    records: int
    logs: tuple[LogPoint, ...]
    ended: tuple[tuple[int, int], ...]
    terms: tuple[_Term, ...]
    runs: int
    counts: tuple[int, ...]


class _Version(msgspec.Struct):
    version: int


# -- encoding


def encode(snapshot: Snapshot) -> Iterator[bytes]:
    """The chunks of a snapshot, one a step. Nothing of it may change until the last one is taken."""
    context = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
    for number, piece in enumerate(_whole_pieces(_pieces(snapshot))):
        frame = context.compress(piece)
        head = _CHUNK.pack(MAGIC, _version(snapshot), number, len(piece), 0)[:_COVERED]
        yield head + _LENGTH.pack(crc32c(frame, crc32c(head))) + frame


def _version(snapshot: Snapshot) -> int:
    return VERSION if len(snapshot.state.writer_floors.books) else _VERSION_1


def raw_bytes(snapshot: Snapshot) -> int:
    """Bytes of a snapshot before compression: what `Decoder` is to be given."""
    return _LENGTH.size + len(_head(snapshot)) + sum(column.nbytes for column, _ in _columns(snapshot.state))


def _columns(state: StateSnapshot) -> Iterator[tuple[Column, np.dtype[Any]]]:
    """All columns with what they are stored as."""
    for term in state.terms:
        yield from zip(term[-len(_TERM) :], _TERM, strict=True)
    for rows in state.rows:
        yield from zip(rows, _ROWS, strict=True)
    writers: list[Any] = list(state.writers)
    writers[1] = np.frombuffer(state.writers.ids, np.uint8)
    rest = (NO_ROWS, *state.marks, *state.book_marks, *state.floors, *writers)
    yield from zip(rest, _REST, strict=True)
    if len(state.writer_floors.books):
        yield from zip(state.writer_floors, _FLOORS, strict=True)


def _head(snapshot: Snapshot) -> bytes:
    state = snapshot.state
    terms = tuple(
        _Term(
            *(one.term, one.log, one.slots, one.end_pos, one.live, one.last_time_ms, one.over),
            *(one.shards, one.lost, one.passed),
        )
        for one in state.terms
    )
    counts = tuple(len(column) for column, _ in _columns(state))
    return msgspec.msgpack.encode(
        _Head(_version(snapshot), state.records, snapshot.logs, snapshot.ended, terms, len(state.rows), counts)
    )


def _pieces(snapshot: Snapshot) -> Iterator[Buffer]:
    head = _head(snapshot)
    yield _LENGTH.pack(len(head))
    yield head
    for column, kind in _columns(snapshot.state):
        column = np.ascontiguousarray(column, kind)
        if kind != _U64:
            yield column.view(np.uint8).data
            continue
        for start in range(0, len(column), _SLICE_ITEMS):
            part = column[start : start + _SLICE_ITEMS]
            yield np.diff(part, prepend=column[start - 1] if start else _U64.type(0)).view(np.uint8).data


def _whole_pieces(pieces: Iterator[Buffer]) -> Iterator[bytes]:
    """The same bytes, CHUNK_BYTES at a time."""
    waiting = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), CHUNK_BYTES):
            waiting += view[start : start + CHUNK_BYTES]
            if len(waiting) >= CHUNK_BYTES:
                yield bytes(waiting[:CHUNK_BYTES])
                del waiting[:CHUNK_BYTES]
    if waiting:
        yield bytes(waiting)


# -- decoding


class Decoder:
    """Takes the chunks of one snapshot, in order. Invariant: no more than `raw_bytes` is ever allocated for columns."""

    def __init__(self, raw_bytes: int) -> None:
        """`raw_bytes`: of the whole snapshot before compression, as its node says."""
        self._raw_bytes = raw_bytes
        self.chunks = 0
        """Taken so far."""
        self._version = 0
        """Of the chunks."""
        self._taken = 0
        self._begin = bytearray()
        self._head: _Head | None = None
        self._columns: list[Column] = []
        self._at = 0
        self._filled = 0
        """Bytes of the column that is being filled."""
        self._context = zstandard.ZstdDecompressor()

    def feed(self, chunk: Buffer) -> None:
        """Takes the next chunk. Raises CorruptData, VersionMismatch."""
        piece = self._piece(memoryview(chunk))
        self._taken += len(piece)
        if self._taken > self._raw_bytes:
            raise CorruptData(f"expected a snapshot of {self._raw_bytes} bytes, found more", expected=self._raw_bytes)
        if self._head is None:
            self._begin += piece
            piece = self._take_head()
        self._fill(memoryview(piece))

    def _piece(self, chunk: memoryview) -> bytes:
        if len(chunk) < _CHUNK.size:
            raise CorruptData(f"chunk {self.chunks} of a snapshot has {len(chunk)} bytes, which is no chunk")
        magic, version, number, length, crc = _CHUNK.unpack_from(chunk)
        if magic != MAGIC:
            raise CorruptData(f"chunk {self.chunks} of a snapshot begins with {magic!r}, expected {MAGIC!r}")
        if version not in (_VERSION_1, VERSION):
            raise _newer(version)
        self._version = version
        frame = chunk[_CHUNK.size :]
        if crc != crc32c(frame, crc32c(chunk[:_COVERED])):
            raise CorruptData(f"chunk {self.chunks} of a snapshot does not match its checksum")
        try:
            declared = zstandard.frame_content_size(frame)
        except zstandard.ZstdError as error:
            raise CorruptData(f"chunk {number} of a snapshot holds no frame: {error}") from error
        if number != self.chunks or not 0 < length <= CHUNK_BYTES or declared != length:
            raise CorruptData(
                f"expected chunk {self.chunks} of at most {CHUNK_BYTES} bytes, found chunk {number} of {length}, whose "
                f"frame has {declared}"
            )
        self.chunks += 1
        try:
            piece: bytes = self._context.decompress(frame)
        except zstandard.ZstdError as error:
            raise CorruptData(f"chunk {number} of a snapshot cannot be decompressed: {error}") from error
        return piece

    def _take_head(self) -> bytes:
        """Reads the head once it is whole; returns what lies behind it."""
        begin = self._begin
        if len(begin) < _LENGTH.size:
            return b""
        (length,) = _LENGTH.unpack_from(begin)
        if length > min(HEAD_BYTES, self._raw_bytes):
            raise CorruptData(f"a snapshot of {self._raw_bytes} bytes says that its head has {length}")
        end = _LENGTH.size + length
        if len(begin) < end:
            return b""
        data = bytes(begin[_LENGTH.size : end])
        try:
            version = msgspec.msgpack.decode(data, type=_Version).version
            if version not in (_VERSION_1, VERSION):
                raise _newer(version)
            head = msgspec.msgpack.decode(data, type=_Head)
        except DECODE_FAULTS as error:
            raise CorruptData(f"the head of a snapshot does not hold what it should: {error}") from error
        if head.version != self._version:
            raise CorruptData(f"a snapshot in chunks of version {self._version} has a head of version {head.version}")
        kinds = _TERM * len(head.terms) + _ROWS * head.runs + _REST + (_FLOORS if version == VERSION else ())
        if len(head.counts) != len(kinds) or min(head.counts) < 0:
            raise CorruptData(f"the head of a snapshot names {len(head.counts)} columns, expected {len(kinds)}")
        columns_bytes = sum(count * kind.itemsize for count, kind in zip(head.counts, kinds, strict=True))
        if end + columns_bytes != self._raw_bytes:
            raise CorruptData(
                f"expected a snapshot of {self._raw_bytes} bytes, found a head for {end + columns_bytes}",
                expected=self._raw_bytes,
                found=end + columns_bytes,
            )
        self._head = head
        self._columns = [np.empty(count, kind) for count, kind in zip(head.counts, kinds, strict=True)]
        rest = bytes(begin[end:])
        self._begin = bytearray()
        return rest

    def _fill(self, piece: memoryview) -> None:
        while self._at < len(self._columns):
            column = self._columns[self._at]
            if self._filled < column.nbytes:
                if not piece:
                    return
                count = min(len(piece), column.nbytes - self._filled)
                column.view(np.uint8)[self._filled : self._filled + count] = piece[:count]
                self._filled += count
                piece = piece[count:]
            else:
                self._at += 1
                self._filled = 0

    def finish(self) -> Iterator[None]:
        """Restores what was stored as differences, some at a step; `snapshot` has it afterwards. Raises CorruptData: chunks are
        missing, or columns do not fit each other."""
        if self._head is None or self._taken != self._raw_bytes or self._at != len(self._columns):
            raise CorruptData(
                f"expected a snapshot of {self._raw_bytes} bytes, found its first {self._taken}",
                expected=self._raw_bytes,
                found=self._taken,
            )
        for column in self._columns:
            if column.dtype == _U64:
                for start in range(0, len(column), _SUM_ITEMS):
                    part = column[start : start + _SUM_ITEMS]
                    if start:
                        part[:1] += column[start - 1 : start]  # an array: numbers may overflow in it
                    np.cumsum(part, out=part)
                    yield
        yield

    def snapshot(self) -> Snapshot:
        """What the chunks held; after `finish`. Raises CorruptData."""
        assert self._head is not None
        head, columns = self._head, iter(self._columns)
        terms = tuple(
            TermColumns(
                *(one.term, one.log, one.slots, one.end_pos, one.live, one.last_time_ms, one.over),
                tuple(ShardColumns(*shard[:-1], Counts(*shard[-1])) for shard in one.shards),
                tuple(LostEntries(*lost) for lost in one.lost),
                tuple(PassedOver(*passed) for passed in one.passed),
                *_take(columns, len(_TERM)),
            )
            for one in head.terms
        )
        rows = tuple(RowColumns(*_take(columns, len(_ROWS))) for _ in range(head.runs))
        next(columns)
        marks = MarkColumns(*_take(columns, 3))
        book_marks, floors = (PairColumns(*_take(columns, 2)) for _ in range(2))
        of_writers: list[Any] = list(_take(columns, len(WriterColumns._fields)))
        of_writers[1] = of_writers[1].tobytes()
        writers = WriterColumns(*of_writers)
        writer_floors = PairColumns(*_take(columns, 2)) if head.version == VERSION else NO_PAIRS
        state = StateSnapshot(head.records, terms, rows, marks, book_marks, floors, writers, writer_floors)
        _check(state)
        return Snapshot(state, head.logs, head.ended)


def _take(columns: Iterator[Column], count: int) -> Sequence[Column]:
    return [next(columns) for _ in range(count)]


def _newer(version: int) -> VersionMismatch:
    return VersionMismatch(
        f"expected version {VERSION} or {_VERSION_1} of index snapshots, found {version}: upgrade this program",
        expected=version,
        found=VERSION,
    )


# -- checking


def _check(state: StateSnapshot) -> None:
    faults = [
        *(f"term {one.term}: {fault}" for one in state.terms for fault in _faults_of_term(one)),
        *(f"run {at}: {fault}" for at, rows in enumerate(state.rows) for fault in _faults_of_rows(rows)),
        *(f"writers: {fault}" for fault in _faults_of_writers(state.writers)),
        *(
            "marks are not of one length"
            for columns in (state.marks, state.book_marks, state.floors, state.writer_floors)
            if _uneven(columns)
        ),
    ]
    if faults:
        raise CorruptData(f"the columns of a snapshot do not fit each other: {'; '.join(faults[:10])}")


def _uneven(columns: Sequence[Any]) -> bool:
    return len({len(column) for column in columns}) != 1


def _faults_of_term(term: TermColumns) -> Iterator[str]:
    if _uneven((term.first_positions, term.entry_shards, term.entries, term.times)):
        yield "its rows are not of one length"
    if len(term.minutes) != len(term.minute_positions) or len(term.losers) % 2:
        yield "its spans do not end"
    numbers = [shard.number for shard in term.shards]
    ends = [number for shard in term.shards for number in (shard.ledger_id, shard.records_end, shard.entries_end)]
    if not (
        0 < term.term <= limits.TERM_MAX and 0 <= term.end_pos <= limits.POSITION_MAX and 0 <= term.live <= term.end_pos
    ):
        yield "its number or its records cannot be"
    if min([*numbers, *ends], default=0) < 0 or max(numbers, default=0) > _U32_MAX or max(ends, default=0) > _I63_MAX:
        yield "it has shards that cannot be"
        return
    known = np.array(numbers, np.uint32)
    if len(term.entry_shards) and not np.isin(np.unique(term.entry_shards), known).all():
        yield "it has entries of a shard that it does not name"


def _faults_of_rows(rows: RowColumns) -> Iterator[str]:
    if len(rows.books) != len(rows.tags) or len(rows.offsets) != len(rows.books) + 1:
        yield "its streams are not of one length"
    elif len(rows.seqnums) != len(rows.held) or not len(rows.seqnums) or rows.offsets[0]:
        yield "its rows are not of one length"
    elif rows.offsets[-1] != len(rows.seqnums) or (rows.offsets[1:] <= rows.offsets[:-1]).any():
        yield "its streams do not follow one another"


def _faults_of_writers(writers: WriterColumns) -> Iterator[str]:
    if _uneven((writers.books, *writers[2:8])) or len(writers.ids) != _WRITER_IDS * len(writers.books):
        yield "they are not of one length"
    elif _uneven(writers[8:13]) or int(writers.kept_counts.sum()) != len(writers.kept_first):
        yield "their answers are not as many as they say"
    elif not int(writers.actual_counts.sum()) == len(writers.actual_tags) == len(writers.actual_newest):
        yield "the streams of their conflicts are not as many as they say"
    elif int(writers.crc_counts.sum()) != len(writers.crcs):
        yield "their checksums are not as many as they say"
