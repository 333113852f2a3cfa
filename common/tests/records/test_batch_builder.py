"""What is built quickly equals what is built record by record."""

from __future__ import annotations

from struct import pack
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RUN_RESENT, RecordBatch
from boki_common.records.run_column import RUN_KEY
from boki_common.records.tag_names import NO_NAMES

Record = tuple[list[int], bytes]

tags = st.lists(st.integers(1, 2**64 - 2), max_size=4)
records = st.lists(st.tuples(tags, st.binary(max_size=60)), min_size=1, max_size=6)


class More(NamedTuple):
    """A row with a field that is not looked at."""

    packed: bytes
    tag_count: int
    names: bytes
    size: int


def row_of(record: Record) -> tuple[bytes, int, bytes]:
    numbers, _ = record
    return pack(f"<{len(numbers)}Q", *numbers), len(numbers), NO_NAMES


@given(st.lists(records, min_size=1, max_size=4))
def test_records_added_by_columns_are_as_if_added_one_by_one(runs: list[list[Record]]) -> None:
    columns, one_by_one = BatchBuilder(), BatchBuilder()
    for book, rows in enumerate(runs):
        columns.start_run_of(RUN_KEY.pack(book, b"w" * 16), 9, 7, RUN_RESENT)
        more = [More(*row_of(row), at) if at % 2 else row_of(row) for at, row in enumerate(rows)]
        columns.add_rows(more, [data for _, data in rows])
        one_by_one.start_run(book, b"w" * 16, 9, 7, RUN_RESENT)
        for row in rows:
            one_by_one.add(*row_of(row), row[1])
    built = b"".join(columns.finish(b"before"))
    assert built == b"".join(one_by_one.finish(b"before"))
    batch = RecordBatch.parse(memoryview(built[len(b"before") :]))
    assert list(batch.runs) == [
        (book, b"w" * 16, 9, 7, len(rows), sum(len(numbers) for numbers, _ in rows), 0, RUN_RESENT)
        for book, rows in enumerate(runs)
    ]
    flat = [row for rows in runs for row in rows]
    assert [batch.record_tags(at).tolist() for at in range(len(flat))] == [numbers for numbers, _ in flat]
    assert [bytes(batch.payload(at)) for at in range(len(flat))] == [NO_NAMES + data for _, data in flat]


def test_expectations_and_checksums_are_of_their_runs() -> None:
    builder = BatchBuilder()
    builder.start_run(1, b"w" * 16, 1, 1, RUN_NAMED)
    for crc in (5, 6):
        builder.add(b"", 0, NO_NAMES, b"x")
        builder.checksum(crc)
    builder.expect(3, 30)
    builder.start_run(2, b"w" * 16, 1, 1)
    builder.add(b"", 0, NO_NAMES, b"y")
    assert builder.expects
    builder.expect(4, 40)
    builder.expect(5, 50)
    batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
    assert batch.expectations == ([3, 4, 5], [30, 40, 50], [1, 0, 0])
    assert [run.expectation_count for run in batch.runs] == [1, 2]
    assert batch.crcs.tolist() == [5, 6]


def test_large_records_are_not_copied_into_the_frame() -> None:
    data = bytes(1_000_000)
    builder = BatchBuilder()
    builder.start_run(1, bytes(16), 1, 1)
    builder.add(b"", 0, NO_NAMES, data)
    assert any(buffer is data for buffer in builder.finish())
