"""What is built quickly equals what is built record by record."""

from __future__ import annotations

from struct import pack

from hypothesis import example, given
from hypothesis import strategies as st

from boki_common.batch_builder import BatchBuilder, batch_of_one
from boki_common.record_batch import NO_NAMES, RUN_RESENT, RUN_ROW, RecordBatch, pack_names
from boki_common.run_column import RUN_KEY, RUN_OF_KEY

Record = tuple[list[int], bytes]

tags = st.lists(st.integers(1, 2**64 - 2), max_size=4)
records = st.lists(st.tuples(tags, st.binary(max_size=60)), min_size=1, max_size=6)


@given(records)
def test_records_added_by_columns_are_as_if_added_one_by_one(rows: list[Record]) -> None:
    builder = BatchBuilder()
    builder.start_run(1, bytes(range(16)), 9, 9)
    builder.add_many(
        [pack(f"<{len(numbers)}Q", *numbers) for numbers, _ in rows],
        [len(numbers) for numbers, _ in rows],
        [NO_NAMES] * len(rows),
        [data for _, data in rows],
    )
    one_by_one = BatchBuilder()
    one_by_one.start_run(1, bytes(range(16)), 9, 9)
    for numbers, data in rows:
        one_by_one.add(pack(f"<{len(numbers)}Q", *numbers), len(numbers), NO_NAMES, data)
    assert (builder.size, builder.record_count) == (one_by_one.size, one_by_one.record_count)
    assert b"".join(builder.finish()) == b"".join(one_by_one.finish())


@given(records, records)
def test_runs_of_one_record_are_as_if_added_in_two_calls(batch: list[Record], others: list[Record]) -> None:
    quick, slow = BatchBuilder(), BatchBuilder()
    for builder in (quick, slow):
        builder.start_run(1, bytes(range(16)), 9, 9)
        for tags, data in others:
            builder.add(pack(f"<{len(tags)}Q", *tags), len(tags), NO_NAMES, data)
    for book, (tags, data) in enumerate(batch):
        slow.start_run(book, b"w" * 16, 9, 7, RUN_RESENT)
        slow.add(pack(f"<{len(tags)}Q", *tags), len(tags), NO_NAMES, data)
    rows = [RUN_ROW.pack(book, b"w" * 16, 9, 7, 1, len(tags), 0, RUN_RESENT) for book, (tags, _) in enumerate(batch)]
    keys = [RUN_KEY.pack(book, b"w" * 16) for book in range(len(batch))]
    assert rows == [
        RUN_OF_KEY.pack(key, 9, 7, 1, len(one[0]), 0, RUN_RESENT) for key, one in zip(keys, batch, strict=True)
    ]
    quick.add_runs_of_one(
        rows,
        [pack(f"<{len(tags)}Q", *tags) for tags, _ in batch if tags],
        [len(tags) for tags, _ in batch],
        [part for _, data in batch for part in (NO_NAMES, data)],
    )
    assert quick.record_count == slow.record_count
    assert b"".join(quick.finish()) == b"".join(slow.finish())


@given(tags, st.binary(max_size=60), st.sampled_from([0, RUN_RESENT]), st.sampled_from([b"", b"before"]))
@example([], bytes(100_000), 0, b"token")
def test_a_batch_of_one_record_is_as_if_built_run_by_run(
    numbers: list[int], data: bytes, flags: int, before: bytes
) -> None:
    packed = pack(f"<{len(numbers)}Q", *numbers)
    names = pack_names([(at, b"name") for at in range(len(numbers))])
    builder = BatchBuilder()
    builder.start_run(5, b"w" * 16, 9, 7, flags)
    builder.add(packed, len(numbers), names, data)
    alone = batch_of_one(5, b"w" * 16, 9, 7, flags, packed, len(numbers), names, data, before)
    assert list(map(bytes, builder.finish(before))) == alone
    assert len(alone) == (1 if len(data) < 16_000 else 3)
    (run,) = RecordBatch.parse(memoryview(b"".join(alone)[len(before) :])).runs
    assert run == (5, b"w" * 16, 9, 7, 1, len(numbers), 0, flags)


def test_large_records_are_not_copied_into_the_frame() -> None:
    data = bytes(1_000_000)
    builder = BatchBuilder()
    builder.start_run(1, bytes(16), 1, 1)
    builder.add(b"", 0, NO_NAMES, data)
    assert any(buffer is data for buffer in builder.finish())
