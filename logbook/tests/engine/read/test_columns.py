"""Columns of a reply against the batch they come from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common.engine.read_reply import POINT_TAGS, decode_records, encode_point, encode_read_reply
from boki_common.ids import Position
from boki_common.records.tag_names import split_payload
from boki_logbook.read.columns import RecordColumns, one_record
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch

FIRST = 1_000
RECORDS = st.lists(
    st.tuples(st.lists(st.integers(1, 9), max_size=3).map(tuple), st.binary(max_size=30)).map(
        lambda drawn: RecordSpec(*drawn)
    ),
    min_size=1,
    max_size=12,
)


def read_back(columns: RecordColumns) -> list[tuple[int, int, tuple[int, ...], bytes]]:
    found = decode_records(memoryview(b"".join(columns.finish())))
    rows, tag, start = [], 0, 0
    tags = found.tags.tolist()
    for seqnum, time_ms, tag_count, length in zip(
        found.seqnums.tolist(),
        found.times_ms.tolist(),
        found.tag_counts.tolist(),
        found.payload_lengths.tolist(),
        strict=True,
    ):
        payload = found.payloads[start : start + length]
        data = bytes(split_payload(payload)[1]) if length else b""
        rows.append((seqnum, time_ms, tuple(tags[tag : tag + tag_count]), data))
        tag, start = tag + tag_count, start + length
    return rows


@given(RECORDS, st.data(), st.integers(0, 200))
def test_records_come_back_as_many_as_fit(records: list[RecordSpec], data: st.DataObject, max_bytes: int) -> None:
    batch = make_batch(RunSpec(1, bytes(16), 1, tuple(records)))
    chosen = sorted(
        data.draw(st.lists(st.integers(0, len(records) - 1), min_size=1, unique=True)), reverse=data.draw(st.booleans())
    )
    if data.draw(st.booleans()):
        chosen = list(range(min(chosen), max(chosen) + 1))
    columns = RecordColumns(max_bytes)
    columns.add(batch, FIRST, 77, [FIRST + record for record in chosen])
    fitting: list[int] = []
    used = 0
    for record in chosen:
        used += len(records[record].data) + 2
        if fitting and used > max_bytes:
            break
        fitting.append(record)
        if used > max_bytes:
            break
    expected = [(FIRST + record, 77, records[record].tags, records[record].data) for record in fitting]
    assert read_back(columns) == expected
    assert columns.count == len(fitting)
    if len(fitting) < len(chosen):
        assert columns.full


def test_nothing_is_a_row_too() -> None:
    batch = make_batch(RunSpec(1, bytes(16), 1, (RecordSpec(tags=(5,), data=b"x"),)))
    columns = RecordColumns(100)
    columns.add_nothing()
    columns.add(batch, FIRST, 3, [FIRST])
    columns.add_nothing()
    assert read_back(columns) == [(0, 0, (), b""), (FIRST, 3, (5,), b"x"), (0, 0, (), b"")]


def test_neighbours_are_one_view_of_the_data() -> None:
    batch = make_batch(RunSpec(1, bytes(16), 1, (RecordSpec(data=b"abc"),) * 100))
    columns = RecordColumns(10_000)
    columns.add(batch, FIRST, 3, [FIRST + at for at in range(10, 90)])
    assert len(columns.finish()) == 2


def test_no_records_at_all() -> None:
    assert read_back(RecordColumns(10)) == []


@given(RECORDS, st.data())
def test_one_record_has_the_tags_and_the_payload_that_it_has_among_others(
    records: list[RecordSpec], data: st.DataObject
) -> None:
    batch = make_batch(RunSpec(1, bytes(16), 1, tuple(records)))
    assert all(len(one.tags) <= POINT_TAGS for one in records)
    record = data.draw(st.integers(0, len(records) - 1))
    columns = RecordColumns(0)
    columns.add(batch, FIRST, 77, [FIRST + record])
    tags, payload = one_record(batch, record)
    point = encode_point(0, Position(1, 2), 3, seqnum=FIRST + record, time_ms=77, tags=tags, payload=payload)
    columnar = encode_read_reply({0: Position(1, 2)}, 3, more=True, records=columns.finish())
    assert b"".join(point) == b"".join(columnar)
