"""A record as readers get it, how it is made from the columns of a reply, and what stands where records are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import msgspec

from boki_common.engine_protocol import GapKind, GapRow
from boki_common.errors import CorruptData, LogBookError, Lost, Trimmed
from boki_common.read_reply import Point, RecordColumns
from boki_common.record_batch import NO_NAMES, split_payload


class Record(msgspec.Struct, frozen=True):
    """One record of a LogBook. Immutable.

    Attributes:
        seqnum: its place in the order of its book; unique in the cluster, 63 bits.
        tags: in the order given at the append: names where names were given, else numbers.
        data: as appended.
        aux_data: what `book.set_aux_data` left with the engine for it; None when there is nothing, or not any more.
        book: as it was given to `client.book`.
        time_ms: when it was ordered: milliseconds since 1970 UTC, never decreasing along a book.
    """

    seqnum: int
    tags: tuple[str | int, ...]
    data: bytes
    aux_data: bytes | None
    book: str | int
    time_ms: int


class Gap(msgspec.Struct, frozen=True):
    """Stands in a range read where records are missing: seqnums `first` to `last`, both included. Immutable.

    Whether there were records of the stream among these seqnums is not known any more. Who treats a gap as a record gets
    the gap's error: `data`, `seqnum`, `tags` and the other fields of a record raise Trimmed or Lost.

    Attributes:
        kind: GapKind.TRIMMED, or GapKind.LOST: given up by an administrator, with evidence.
        first, last: seqnums.
        book: as it was given to `client.book`.
    """

    kind: GapKind
    first: int
    last: int
    book: str | int

    def error(self) -> LogBookError:
        """What a point read of these seqnums raises."""
        facts = {"book": self.book, "first": self.first, "last": self.last, "mark": self.last + 1}
        if self.kind == GapKind.LOST:
            return Lost(f"records {self.first} to {self.last} of book {self.book!r} were declared lost", **facts)
        return Trimmed(
            f"book {self.book!r} is trimmed below {self.last + 1}: what was there from {self.first} on is not known any "
            f"more; read from {self.last + 1} on",
            **facts,
        )

    def _no_record(self) -> NoReturn:
        raise self.error()

    @property
    def seqnum(self) -> int:
        """Raises: a gap is no record."""
        self._no_record()

    @property
    def data(self) -> bytes:
        """Raises: a gap is no record."""
        self._no_record()

    @property
    def tags(self) -> tuple[str | int, ...]:
        """Raises: a gap is no record."""
        self._no_record()

    @property
    def aux_data(self) -> bytes | None:
        """Raises: a gap is no record."""
        self._no_record()

    @property
    def time_ms(self) -> int:
        """Raises: a gap is no record."""
        self._no_record()


def decode_gaps(rows: tuple[GapRow, ...], book: str | int) -> list[Gap]:
    """The gaps of a reply, ascending."""
    return [Gap(row.kind, row.first, row.last, book) for row in rows]


def record_of(point: Point, book: str | int) -> Record:
    """The record of a reply that has nothing else. Raises CorruptData: the names in its payload do not fit it."""
    _, _, seqnum, time_ms, numbers, payload = point
    if payload[: len(NO_NAMES)] == NO_NAMES:
        return Record(seqnum, tuple(numbers), bytes(payload[len(NO_NAMES) :]), None, book, time_ms)
    names, data = split_payload(payload)
    return Record(seqnum, _named(numbers, names, seqnum), bytes(data), None, book, time_ms)


def _named(numbers: Sequence[int], names: Iterable[tuple[int, str]], seqnum: int) -> tuple[str | int, ...]:
    """Tags, with their names where they have some."""
    tags: list[str | int] = [*numbers]
    for index, name in names:
        if index >= len(tags):
            raise CorruptData(f"record {seqnum} has {len(tags)} tags and a name for tag {index}", seqnum=seqnum)
        tags[index] = name
    return tuple(tags)


def decode_columns(
    columns: RecordColumns,
    book: str | int,
    aux: Mapping[int, memoryview] = {},
) -> list[Record | None]:
    """The records of a reply, in its order; a row with seqnum 0 becomes None. `aux`: cached data of some rows.

    Raises:
        CorruptData: the names in a payload do not fit it.
    """
    seqnums, times_ms = columns.seqnums.tolist(), columns.times_ms.tolist()
    tags = columns.tags.tolist()
    tag_counts = columns.tag_counts.tolist()
    lengths = columns.payload_lengths.tolist()
    payloads = columns.payloads
    no_names, no_names_bytes = NO_NAMES, len(NO_NAMES)
    records: list[Record | None] = []
    start = tag_start = 0
    for seqnum, time_ms, tag_count, length in zip(seqnums, times_ms, tag_counts, lengths, strict=True):
        end = start + length
        carried = tags[tag_start : tag_start + tag_count]
        if not seqnum:
            records.append(None)
        elif payloads[start : start + no_names_bytes] == no_names:
            data = bytes(payloads[start + no_names_bytes : end])
            cached = bytes(aux[len(records)]) if aux and len(records) in aux else None
            records.append(Record(seqnum, tuple(carried), data, cached, book, time_ms))
        else:
            names, view = split_payload(payloads[start:end])
            cached = bytes(aux[len(records)]) if aux and len(records) in aux else None
            records.append(Record(seqnum, _named(carried, names, seqnum), bytes(view), cached, book, time_ms))
        start, tag_start = end, tag_start + tag_count
    return records
