"""A record as readers get it, and how it is made from the columns of a reply."""

from __future__ import annotations

import msgspec

from boki_common.engine_protocol import RecordColumns
from boki_common.errors import CorruptData
from boki_common.record_batch import NO_NAMES, split_payload


class Record(msgspec.Struct, frozen=True):
    """One record of a LogBook. Immutable.

    Attributes:
        seqnum: its place in the order of its book; unique in the cluster, 63 bits.
        tags: in the order given at the append: names where names were given, else numbers.
        data: as appended.
        aux_data: cached data kept beside the record; always None in this version.
        book: as it was given to `client.book`.
        time_ms: when it was ordered: milliseconds since 1970 UTC, never decreasing along a book.
    """

    seqnum: int
    tags: tuple[str | int, ...]
    data: bytes
    aux_data: bytes | None
    book: str | int
    time_ms: int


def decode_columns(columns: RecordColumns, book: str | int) -> list[Record | None]:
    """The records of a reply, in its order; a row with seqnum 0 becomes None.

    Raises:
        CorruptData: the names in a payload do not fit it.
    """
    seqnums, times_ms = columns.seqnums.tolist(), columns.times_ms.tolist()
    tags, tag_counts = columns.tags.tolist(), columns.tag_counts.tolist()
    lengths = columns.payload_lengths.tolist()
    payloads = columns.payloads
    no_names, no_names_bytes = NO_NAMES, len(NO_NAMES)
    records: list[Record | None] = []
    start = tag_start = 0
    for seqnum, time_ms, tag_count, length in zip(seqnums, times_ms, tag_counts, lengths, strict=True):
        end = start + length
        carried: list[str | int] = tags[tag_start : tag_start + tag_count]
        if not seqnum:
            records.append(None)
        elif payloads[start : start + no_names_bytes] == no_names:
            data = bytes(payloads[start + no_names_bytes : end])
            records.append(Record(seqnum, tuple(carried), data, None, book, time_ms))
        else:
            names, view = split_payload(payloads[start:end])
            for index, name in names:
                if index >= tag_count:
                    raise CorruptData(f"record {seqnum} has {tag_count} tags and a name for tag {index}", seqnum=seqnum)
                carried[index] = name
            records.append(Record(seqnum, tuple(carried), bytes(view), None, book, time_ms))
        start, tag_start = end, tag_start + tag_count
    return records
