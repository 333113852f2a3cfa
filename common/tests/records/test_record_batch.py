"""Record batches: what goes in comes out, joining equals building at once, damage is refused."""

from __future__ import annotations

from struct import pack, pack_into

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.errors import BokiError, CorruptData, ProtocolError, VersionMismatch
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_END, RUN_NAMED, RUN_RESENT, RUN_VOID, RecordBatch, join
from boki_common.records.tag_names import NO_NAMES, pack_names, split_payload

Record = tuple[list[int], bytes]
RunOfRecords = tuple[int, int, list[Record]]

tags = st.lists(st.integers(1, 2**64 - 2), max_size=4)
records = st.lists(st.tuples(tags, st.binary(max_size=60)), min_size=1, max_size=6)
runs = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**63), records), min_size=1, max_size=4)


def build(rows: list[RunOfRecords], flags: int = 0) -> memoryview:
    builder = BatchBuilder()
    for book, first, batch in rows:
        builder.start_run(book, bytes(range(16)), first, first, flags)
        for index, (numbers, data) in enumerate(batch):
            builder.add(pack(f"<{len(numbers)}Q", *numbers), len(numbers), NO_NAMES, data)
            if flags & RUN_NAMED:
                builder.checksum(index)
            if index % 2:
                builder.expect(7, index)
    return memoryview(b"".join(builder.finish()))


def contents(batch: RecordBatch) -> list[Record]:
    return [
        (batch.record_tags(record).tolist(), bytes(batch.payload(record)[2:])) for record in range(batch.record_count)
    ]


@given(runs, st.sampled_from([0, RUN_NAMED]))
def test_parse_returns_what_was_built(rows: list[RunOfRecords], flags: int) -> None:
    batch = RecordBatch.parse(build(rows, flags))
    assert contents(batch) == [record for _, _, batch in rows for record in batch]
    assert [(run.book, run.first, run.count) for run in batch.runs] == [(b, f, len(r)) for b, f, r in rows]
    assert [len(batch.crcs), len(batch.expectations.tags)] == [
        batch.record_count if flags else 0,
        sum(len(r) // 2 for _, _, r in rows),
    ]
    assert len(batch.header) % 8 == 0


@given(st.lists(runs, min_size=1, max_size=4), st.booleans())
def test_joined_batches_hold_the_same_runs_and_records_in_order(
    groups: list[list[RunOfRecords]], squeeze: bool
) -> None:
    batches = [RecordBatch.parse(build(rows)) for rows in groups]
    compress = zstandard.ZstdCompressor(1).compress if squeeze else None
    joined = RecordBatch.parse(
        memoryview(b"".join(join(batches, term=3, shard=9, first_local_id=2**40, compress=compress)))
    )
    assert contents(joined) == [record for batch in batches for record in contents(batch)]
    assert joined.runs == [run for batch in batches for run in batch.runs]
    assert list(zip(*joined.expectations, strict=True)) == [
        row for batch in batches for row in zip(*batch.expectations, strict=True)
    ]
    assert (joined.term, joined.shard, joined.first_local_id) == (3, 9, 2**40)


@given(
    st.lists(runs, min_size=1, max_size=3), st.lists(st.sampled_from([0, RUN_NAMED]), min_size=3, max_size=3), st.data()
)
def test_a_subset_holds_the_chosen_runs_and_their_records(
    batches: list[list[RunOfRecords]], flags: list[int], data: st.DataObject
) -> None:
    parts = [RecordBatch.parse(build(rows, flag)) for rows, flag in zip(batches, flags, strict=False)]
    whole = RecordBatch.parse(memoryview(b"".join(join(parts, term=3, shard=4, first_local_id=5))))
    rows = [(row, flag) for batch, flag in zip(batches, flags, strict=False) for row in batch]
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
    subset = whole.subset(chosen)
    assert subset.runs == [whole.runs[at] for at in chosen]
    assert contents(subset) == [record for at in chosen for record in rows[at][0][2]]
    crcs = [index for at in chosen for index in range(len(rows[at][0][2])) if rows[at][1] & RUN_NAMED]
    assert subset.crcs.tolist() == crcs
    again = RecordBatch.parse(subset._view)  # every count and sum is right
    assert (again.term, again.shard, again.first_local_id) == (3, 4, 5)


def test_a_subset_keeps_the_expectations_of_its_runs() -> None:
    builder = BatchBuilder()
    for book in range(4):
        builder.start_run(book, bytes(16), 1, 1)
        builder.add(b"", 0, NO_NAMES, b"x")
        for tag in range(1, book + 1):
            builder.expect(tag, 10 * book)
    subset = RecordBatch.parse(memoryview(b"".join(builder.finish()))).subset([1, 3])
    assert list(zip(*subset.expectations, strict=True)) == [
        (1, 10, 0),
        (1, 30, 0),
        (2, 30, 0),
        (3, 30, 0),
    ]


@pytest.mark.parametrize("books", [2, 100])
def test_an_expectation_of_a_record_outside_its_run_is_refused_in_any_batch(books: int) -> None:
    builder = BatchBuilder()
    builder.start_run(7, bytes(16), 1, 1, RUN_END)
    for book in range(books):
        builder.start_run(book, bytes(16), 1, 1)
        builder.add(b"", 0, NO_NAMES, b"x")
        builder.add(b"", 0, NO_NAMES, b"x")
        builder.expect(5, 9)
    view = bytearray(b"".join(builder.finish()))
    assert list(zip(*RecordBatch.parse(memoryview(view)).expectations, strict=True)) == [(5, 9, 1)] * books
    for row in range(2):
        changed = bytearray(view)
        pack_into("<I", changed, 64 + (books + 1) * RUN_BYTES + 24 * row + 16, 2)
        with pytest.raises(ProtocolError, match="a record of the run"):
            RecordBatch.parse(memoryview(changed))


def test_a_subset_keeps_runs_without_records() -> None:
    builder = BatchBuilder()
    for book in range(4):
        builder.start_run(book, bytes(16), 5, 5, RUN_END if book != 2 else RUN_NAMED)
        if book == 2:
            builder.add(b"", 0, NO_NAMES, b"x")
            builder.checksum(77)
    batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
    subset = batch.subset([0, 2, 3])
    assert [(run.book, run.count) for run in subset.runs] == [(0, 0), (2, 1), (3, 0)]
    assert (contents(subset), subset.crcs.tolist()) == ([([], b"x")], [77])
    assert RecordBatch.parse(subset._view).runs == subset.runs
    assert batch.subset([1]).record_count == 0


@given(runs)
def test_header_alone_says_all_but_the_data(rows: list[RunOfRecords]) -> None:
    whole = RecordBatch.parse(build(rows))
    header = RecordBatch.parse(whole.header, header_only=True)
    assert header.runs == whole.runs
    assert np.array_equal(header.tags, whole.tags)
    assert np.array_equal(header.payload_lengths, whole.payload_lengths)


@given(runs, st.data())
def test_a_changed_byte_of_the_header_never_crashes_and_never_reads_outside(
    rows: list[RunOfRecords], data: st.DataObject
) -> None:
    damaged = bytearray(build(rows))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        batch = RecordBatch.parse(memoryview(damaged))
        contents(batch)
    except BokiError:
        return
    assert batch.record_count == sum(len(records) for _, _, records in rows)


@given(runs, st.data())
def test_a_truncated_batch_is_refused(rows: list[RunOfRecords], data: st.DataObject) -> None:
    whole = build(rows)
    with pytest.raises(ProtocolError):
        RecordBatch.parse(whole[: data.draw(st.integers(0, len(whole) - 1))])


ONE: list[RunOfRecords] = [(1, 1, [([5], b"data")])]


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (4, 2**32 - 1, "header bytes"),
        (8, 2**32 - 1, "records"),
        (12, 0, "header bytes"),
        (24, 8, "header bytes"),
        (28, 2**32 - 1, "bytes"),
        (32, limits.ENTRY_BYTES + 1, "data bytes"),
    ],
)
def test_huge_counts_are_refused_by_name_before_memory_is_taken(offset: int, value: int, message: str) -> None:
    batch = bytearray(build(ONE))
    pack_into("<I", batch, offset, value)
    with pytest.raises(ProtocolError, match=message):
        RecordBatch.parse(memoryview(batch))


def test_another_version_is_named() -> None:
    batch = bytearray(build(ONE))
    batch[0] = 9
    with pytest.raises(VersionMismatch, match="expected record batch version 1, found 9"):
        RecordBatch.parse(memoryview(batch))


@pytest.mark.parametrize("tag", [0, 2**64 - 1])
def test_reserved_tags_are_refused(tag: int) -> None:
    with pytest.raises(ProtocolError, match="tag"):
        RecordBatch.parse(build([(1, 1, [([tag], b"")])]))


def test_zstd_frame_that_declares_more_than_the_header_is_never_decompressed() -> None:
    batch = RecordBatch.parse(build(ONE))
    bomb = zstandard.ZstdCompressor(1).compress(bytes(100_000_000))
    joined = join([batch], term=1, shard=1, first_local_id=0, compress=lambda _: bomb)
    with pytest.raises(CorruptData, match="zstd frame of 6 bytes, found one of 100000000"):
        _ = RecordBatch.parse(memoryview(b"".join(joined))).data


@given(st.lists(st.tuples(st.integers(0, 254), st.text(min_size=1, max_size=20)), max_size=8), st.binary(max_size=30))
def test_names_travel_with_their_record(names: list[tuple[int, str]], data: bytes) -> None:
    packed = pack_names([(index, name.encode()) for index, name in names])
    found, rest = split_payload(memoryview(packed + data))
    assert (found, bytes(rest)) == (names, data)


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", b"\x09\x00abc", b"\x03\x00\x00\x09x", b"\x03\x00\x00\x01\xff", b"\x01\x00\x00"]
)
def test_names_that_do_not_fit_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptData):
        split_payload(memoryview(payload))


MANY: list[RunOfRecords] = [(book, 7, [([book + 1] * (book % 3), b"x")] * (1 + book % 2)) for book in range(100)]
RUN_BYTES, COUNT, TAG_COUNT, LOW, FIRST = 56, 40, 44, 32, 24


def test_many_runs_are_checked_as_few_are() -> None:
    batch = RecordBatch.parse(build(MANY))
    assert contents(batch) == [record for _, _, rows in MANY for record in rows]
    assert len(RecordBatch.parse(build(MANY, RUN_NAMED)).crcs) == 150


@pytest.mark.parametrize("runs", [MANY[:10], MANY])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({FIRST: 6}, "at or above its low"),
        ({LOW: 0}, "at or above its low"),
        ({LOW: 8}, "at or above its low"),
        ({52: 16}, "run flags"),
        ({52: RUN_NAMED}, "checksums"),
        ({COUNT: 0}, "records in a run"),
        ({COUNT: 2}, "records in runs"),
        ({COUNT: 2, RUN_BYTES + COUNT: 1}, "tags of"),
        ({TAG_COUNT: 1}, "tags in runs"),
        ({TAG_COUNT: 1, 2 * RUN_BYTES + TAG_COUNT: 1}, "tags of"),
        ({48: 1}, "expectations in runs"),
    ],
)
def test_a_run_that_cannot_be_is_refused_among_few_and_among_many(
    runs: list[RunOfRecords], changes: dict[int, int], message: str
) -> None:
    """The records of run 1 have a tag each, those of runs 0 and 3 none, that of run 2 two."""
    view = bytearray(build([(book, 7, [(tags, b"x") for tags, _ in rows]) for book, _, rows in runs]))
    for offset, value in changes.items():
        pack_into("<Q" if offset % RUN_BYTES in (FIRST, LOW) else "<I", view, 64 + offset, value)
    with pytest.raises(ProtocolError, match=message):
        RecordBatch.parse(memoryview(view))


NAMED_BATCH = (
    "010000000200000003000000010000000100000002000000e800000009000000090000000000000000000000000000000000000000000000"
    "00000000000000000700000000000000000102030405060708090a0b0c0d0e0f050000000000000002000000000000000200000001000000"
    "0100000001000000080000000000000000000000000000000000000000000000010000000000000001000000000000000100000000000000"
    "0000000000000000090000000000000009000000000000000000000008000000000000000000000004000000030000000200000044332211"
    "8877665501000000000061620000630000"
)
"""A run of a named writer, with an expectation, and one of a session writer, as version 1 stores them."""


def test_a_named_run_is_stored_as_it_was_recorded() -> None:
    builder = BatchBuilder()
    builder.start_run(7, bytes(range(16)), 5, 2, RUN_NAMED)
    builder.add(pack("<Q", 9), 1, NO_NAMES, b"ab")
    builder.checksum(0x11223344)
    builder.expect(9, 1 << 35)
    builder.add(b"", 0, NO_NAMES, b"c")
    builder.checksum(0x55667788)
    builder.start_run(8, bytes(16), 1, 1)
    builder.add(b"", 0, NO_NAMES, b"")
    assert b"".join(builder.finish()).hex() == NAMED_BATCH


def test_checksums_are_read_from_what_was_recorded() -> None:
    batch = RecordBatch.parse(memoryview(bytes.fromhex(NAMED_BATCH)))
    assert list(batch.crc_values) == [0x11223344, 0x55667788]
    assert [run.first for run in batch.runs] == [5, 1]
    session = batch.subset([1])
    assert list(session.crc_values) == []


@pytest.mark.parametrize("count", [1, 2, 16, 17, 300])
def test_tags_as_a_list_of_numbers_are_those_of_the_column_be_they_few_or_many(count: int) -> None:
    numbers = [2**64 - 2 - 3 * at for at in range(count)]
    rows: list[Record] = [([number], b"x") for number in numbers]
    checked = RecordBatch.parse(build([(1, 1, rows)]))
    trusted = RecordBatch.parse(build([(1, 1, rows)]), trusted=True)
    for batch in (checked, trusted):
        assert batch.tag_values(0, count) == batch.tags.tolist() == numbers
        assert batch.tag_values(1, count) == numbers[1:]
        assert batch.tag_values(0, 0) == []
        assert list(batch.tag_counts_of(0, count)) == batch.tag_counts.tolist() == [1] * count


@given(runs)
def test_tag_counts_as_bytes_are_those_of_the_column(rows: list[RunOfRecords]) -> None:
    batch = RecordBatch.parse(build(rows, RUN_NAMED))
    counts = batch.tag_counts.tolist()
    assert list(batch.tag_counts_of(0, batch.record_count)) == counts
    assert list(batch.tag_counts_of(1, batch.record_count)) == counts[1:]


@pytest.mark.parametrize("count", [1, 2, 17])
@pytest.mark.parametrize("tag", [0, 2**64 - 1])
def test_a_tag_that_cannot_be_is_refused_among_few_and_many(count: int, tag: int) -> None:
    rows: list[Record] = [([tag if at == count - 1 else 7], b"x") for at in range(count)]
    with pytest.raises(ProtocolError, match="a tag from 1"):
        RecordBatch.parse(build([(1, 1, rows)]))


@pytest.mark.parametrize("numbers", [[], [7], [0], [2**64 - 1], [5, 2**64 - 2], list(range(1, 18))], ids=str)
@pytest.mark.parametrize("flags", [0, RUN_NAMED, RUN_VOID, RUN_RESENT])
def test_one_record_is_checked_as_several_are(numbers: list[int], flags: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way accepts nothing that the long way refuses, whichever byte of the header is another."""
    builder = BatchBuilder()
    builder.start_run(1, b"w" * 16, 9, 7, flags)
    builder.add(pack(f"<{len(numbers)}Q", *numbers), len(numbers), NO_NAMES, b"data")
    if flags & RUN_NAMED:
        builder.checksum(3)
    whole = b"".join(builder.finish())

    def found(view: bytes) -> object:
        try:
            batch = RecordBatch.parse(memoryview(view))
        except BokiError as error:
            return type(error), str(error)
        return (
            batch.runs,
            batch.tag_values(0, batch.tag_count),
            batch.payload_lengths.tolist(),
            batch.tag_counts.tolist(),
        )

    views = [whole]
    for at in range(len(whole) - 6):
        views += [whole[:at] + bytes((value,)) + whole[at + 1 :] for value in (0, 1, 2, 5, 16, 255)]
    short = list(map(found, views))
    monkeypatch.setattr(RecordBatch, "_is_one_unconditional_record", lambda _: False)
    assert short == list(map(found, views))
