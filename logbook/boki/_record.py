"""A record as readers get it, how it is made from the columns of a reply, and what stands where records are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import msgspec

from boki._arguments import TAG_CACHE_COMBINATIONS
from boki_common.engine.engine_protocol import GapKind, GapRow
from boki_common.engine.read_reply import RecordColumns
from boki_common.errors import CorruptData, LogBookError, Lost, Trimmed
from boki_common.records.tag_names import split_payload

KNOWN_BYTES: Final = 1_024
"""Longer names are read each time."""
_known: Final[dict[bytes, tuple[str | int, ...]]] = {}
"""How the payload of a record opens → its tags, when all of them have names; up to `TAG_CACHE_COMBINATIONS`. Records of a
stream share the tuple. Programs use few combinations, and reading names is most of the cost of making a small record."""


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
        kind: GapKind.TRIMMED, or GapKind.LOST: given up by an administrator, or stored so that nobody can read it.
        first, last: seqnums.
        book: as it was given to `client.book`.
        evidence: of a record that cannot be read, what is wrong with it; else empty.
        tag: of a read of several tags, the one whose records they are; None: of all that it names.
    """

    kind: GapKind
    first: int
    last: int
    book: str | int
    evidence: str = ""
    tag: str | int | None = None

    def error(self) -> LogBookError:
        """What a point read of these seqnums raises."""
        facts = {"book": self.book, "first": self.first, "last": self.last, "mark": self.last + 1, "tag": self.tag}
        if self.evidence:
            return Lost(f"record {self.first} of book {self.book!r} cannot be read: {self.evidence}", **facts)
        if self.kind == GapKind.LOST:
            return Lost(
                f"records {self.first} to {self.last} of book {self.book!r} were declared lost (`boki log show LOG --lost` tells "
                "why), or are stored so that nobody can read them",
                **facts,
            )
        where = f"book {self.book!r}" if self.tag is None else f"stream {self.tag!r} of book {self.book!r}"
        return Trimmed(
            f"what this read asks for from {self.first} on in {where} is trimmed below {self.last + 1}; read from {self.last + 1} on",
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


def gap_of(seqnum: int, error: CorruptData, book: str | int) -> Gap:
    """What stands for a record whose payload cannot be opened: by no reader, since its bytes are what was appended."""
    return Gap(GapKind.LOST, seqnum, seqnum, book, str(error))


def open_payload(seqnum: int, numbers: Sequence[int], payload: memoryview) -> tuple[tuple[str | int, ...], bytes]:
    """The tags of a record, as they were given, and its data.

    Args:
        numbers: of its tags.

    Raises:
        CorruptData: the names in the payload do not fit it, or the tags.
    """
    try:
        start = 2 + payload[0] + 256 * payload[1]  # `record_batch.pack_names`: the length of the names, u16
    except IndexError:
        start = 0
    if start == 2:
        return tuple(numbers), bytes(payload[2:])
    names = bytes(payload[:start])
    known = _known.get(names)
    if known is None or len(known) != len(numbers):
        known = _named(seqnum, numbers, payload, names)
    return known, bytes(payload[start:])


def _named(seqnum: int, numbers: Sequence[int], payload: memoryview, opening: bytes) -> tuple[str | int, ...]:
    """Tags, with their names where they have some; kept, when all of them have."""
    names, _ = split_payload(payload)
    tags: list[str | int] = [*numbers]
    named = 0
    for index, name in names:
        if index >= len(tags):
            raise CorruptData(f"record {seqnum} has {len(tags)} tags and a name for tag {index}", seqnum=seqnum)
        tags[index] = name
        named += index == named
    found = tuple(tags)
    if named == len(found) and len(opening) <= KNOWN_BYTES:
        if len(_known) >= TAG_CACHE_COMBINATIONS:
            _known.clear()
        _known[opening] = found
    return found


def decode_columns(
    columns: RecordColumns,
    book: str | int,
    aux: Mapping[int, memoryview] = {},
) -> list[Record | Gap | None]:
    """The records of a reply, in its order; a row with seqnum 0 becomes None, one whose payload cannot be opened a Gap. `aux`:
    cached data of some rows."""
    seqnums, times_ms = columns.seqnums.tolist(), columns.times_ms.tolist()
    tags = columns.tags.tolist()
    tag_counts = columns.tag_counts.tolist()
    lengths = columns.payload_lengths.tolist()
    payloads = columns.payloads
    records: list[Record | Gap | None] = []
    start = tag_start = 0
    for seqnum, time_ms, tag_count, length in zip(seqnums, times_ms, tag_counts, lengths, strict=True):
        end = start + length
        if not seqnum:
            records.append(None)
        else:
            try:
                named, data = open_payload(seqnum, tags[tag_start : tag_start + tag_count], payloads[start:end])
            except CorruptData as error:
                records.append(gap_of(seqnum, error, book))
            else:
                cached = bytes(aux[len(records)]) if aux and len(records) in aux else None
                records.append(Record(seqnum, named, data, cached, book, time_ms))
        start, tag_start = end, tag_start + tag_count
    return records
