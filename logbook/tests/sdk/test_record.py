"""Records from columns."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki import _record
from boki._arguments import TAG_CACHE_COMBINATIONS
from boki._record import Gap, Record, decode_columns, decode_gaps, open_payload
from boki_common.engine.engine_protocol import GapKind, GapRow
from boki_common.engine.read_reply import RecordColumns, decode_records, encode_records
from boki_common.errors import CorruptData, LogBookError, Lost, Trimmed
from boki_common.records.tag_names import NO_NAMES, pack_names


def columns(tags: list[bytes], payloads: list[bytes], seqnums: list[int]) -> RecordColumns:
    counts = [len(packed) // 8 for packed in tags]
    return decode_records(memoryview(b"".join(encode_records(seqnums, [7] * len(seqnums), tags, counts, payloads))))


def test_names_replace_numbers_where_they_were_given() -> None:
    found = decode_columns(
        columns([pack("<2Q", 5, 6), b"", b""], [pack_names([(1, b"six")]) + b"data", b"", NO_NAMES], [9, 0, 11]), "book"
    )
    assert found == [Record(9, (5, "six"), b"data", None, "book", 7), None, Record(11, (), b"", None, "book", 7)]


def test_a_record_whose_names_do_not_fit_it_is_a_gap_among_its_neighbours() -> None:
    good, tags = NO_NAMES + b"x", [pack("<Q", 5)] * 5
    bad = [pack_names([(1, b"six")]), b"\xff\x00abc", pack_names([(0, b"\xff")])]
    found = decode_columns(columns(tags, [good, *bad, good], [7, 8, 9, 10, 11]), "b")
    assert [type(one) for one in found] == [Record, Gap, Gap, Gap, Record]
    gaps = [one for one in found if isinstance(one, Gap)]
    assert [(gap.kind, gap.first, gap.last) for gap in gaps] == [(GapKind.LOST, at, at) for at in (8, 9, 10)]
    for gap, said in zip(
        gaps, ("1 tags and a name for tag 1", "declares 255 bytes of tag names", "not utf-8"), strict=True
    ):
        assert said in gap.evidence
        with pytest.raises(Lost, match="cannot be read: .*" + said):
            _ = gap.data


NAMES = st.sampled_from(["a", "b", "stream/1", "é", "n" * 255])


@given(st.lists(st.lists(st.integers(1, 3) | NAMES, max_size=6), max_size=12))
def test_tags_are_those_that_were_given_however_often_they_were_seen(records: list[list[str | int]]) -> None:
    """Numbers of named tags are not looked at: only what opens the payload says their names."""
    for tags in records:
        numbers = [tag if isinstance(tag, int) else 77 for tag in tags]
        names = [(at, tag.encode()) for at, tag in enumerate(tags) if isinstance(tag, str)]
        payload = pack_names(names) + b"data"
        assert open_payload(9, numbers, memoryview(payload)) == (tuple(tags), b"data")
        for size in range(len(payload) - len(b"data")):
            with pytest.raises(CorruptData):
                open_payload(9, numbers, memoryview(payload[:size]))
        if names:
            with pytest.raises(CorruptData, match="a name for tag"):
                open_payload(9, numbers[: names[-1][0]], memoryview(payload))


def test_records_of_a_stream_share_their_tags_and_not_without_a_bound() -> None:
    payload = memoryview(pack_names([(0, b"shared"), (1, b"too")]))
    first, _ = open_payload(1, [5, 6], payload)
    assert open_payload(2, [5, 6], payload)[0] is first
    for number in range(TAG_CACHE_COMBINATIONS + 1):
        open_payload(1, [5], memoryview(pack_names([(0, b"%d" % number)])))
    assert 0 < len(_record._known) <= TAG_CACHE_COMBINATIONS
    assert open_payload(2, [5, 6], payload)[0] == ("shared", "too")
    long = memoryview(pack_names([(at, b"%d" % at * 200) for at in range(10)]))
    assert open_payload(3, range(10), long)[0] is not open_payload(3, range(10), long)[0]


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
