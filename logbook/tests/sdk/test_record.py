"""Records from columns."""

from __future__ import annotations

from struct import pack

import pytest

from boki._record import Gap, Record, decode_columns, decode_gaps
from boki_common.engine_protocol import GapKind, GapRow
from boki_common.errors import CorruptData, LogBookError, Lost, Trimmed
from boki_common.read_reply import RecordColumns, decode_records, encode_records
from boki_common.record_batch import NO_NAMES, pack_names


def columns(tags: list[bytes], payloads: list[bytes], seqnums: list[int]) -> RecordColumns:
    counts = [len(packed) // 8 for packed in tags]
    return decode_records(memoryview(b"".join(encode_records(seqnums, [7] * len(seqnums), tags, counts, payloads))))


def test_names_replace_numbers_where_they_were_given() -> None:
    found = decode_columns(
        columns([pack("<2Q", 5, 6), b"", b""], [pack_names([(1, b"six")]) + b"data", b"", NO_NAMES], [9, 0, 11]), "book"
    )
    assert found == [Record(9, (5, "six"), b"data", None, "book", 7), None, Record(11, (), b"", None, "book", 7)]


def test_a_name_of_a_tag_that_is_not_there() -> None:
    with pytest.raises(CorruptData, match="record 9 has 1 tags and a name for tag 1"):
        decode_columns(columns([pack("<Q", 5)], [pack_names([(1, b"six")])], [9]), 1)


def test_records_are_values() -> None:
    record = Record(1, ("a",), b"x", None, "book", 2)
    assert record == Record(1, ("a",), b"x", None, "book", 2)
    assert len({record, Record(1, ("a",), b"x", None, "book", 2)}) == 1
    assert not hasattr(record, "__dict__")


def test_aux_data_comes_by_row() -> None:
    found = decode_columns(
        columns([b"", b"", b""], [NO_NAMES, b"", NO_NAMES], [9, 0, 11]), "b", {2: memoryview(b"aux")}
    )
    assert [record.aux_data if record else None for record in found] == [None, None, b"aux"]


@pytest.mark.parametrize(("kind", "error"), [(GapKind.TRIMMED, Trimmed), (GapKind.LOST, Lost)])
def test_a_gap_is_no_record(kind: GapKind, error: type[LogBookError]) -> None:
    (gap,) = decode_gaps((GapRow(5, 8, kind),), "b")
    assert gap == Gap(kind, 5, 8, "b")
    for field in ("seqnum", "data", "tags", "aux_data", "time_ms"):
        with pytest.raises(error) as caught:
            getattr(gap, field)
        assert (caught.value.first, caught.value.last, caught.value.mark, caught.value.book) == (5, 8, 9, "b")
