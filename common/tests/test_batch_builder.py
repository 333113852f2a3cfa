"""What is built quickly equals what is built record by record."""

from __future__ import annotations

from struct import pack

from hypothesis import example, given
from hypothesis import strategies as st

from boki_common.batch_builder import BatchBuilder, batch_of_one
from boki_common.record_batch import NO_NAMES, RUN_RESENT, RecordBatch, pack_names

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


@given(st.lists(st.tuples(st.sampled_from([0, RUN_RESENT]), records), min_size=1, max_size=4))
def test_a_run_of_one_record_is_as_if_added_in_two_calls(rows: list[tuple[int, list[Record]]]) -> None:
    quick, slow = BatchBuilder(), BatchBuilder()
    for book, (flags, batch) in enumerate(rows):
        packed = [(pack(f"<{len(tags)}Q", *tags), len(tags), NO_NAMES, data) for tags, data in batch]
        slow.start_run(book, b"w" * 16, 9, 7, flags)
        if len(packed) == 1:
            quick.add_run_of_one(book, b"w" * 16, 9, 7, flags, *packed[0])
        else:
            quick.start_run(book, b"w" * 16, 9, 7, flags)
            for record in packed:
                quick.add(*record)
        for record in packed:
            slow.add(*record)
    assert b"".join(quick.finish()) == b"".join(slow.finish())


@given(tags, st.binary(max_size=60), st.sampled_from([0, RUN_RESENT]), st.sampled_from([b"", b"before"]))
@example([], bytes(100_000), 0, b"token")
def test_a_batch_of_one_record_is_as_if_built_run_by_run(
    numbers: list[int], data: bytes, flags: int, before: bytes
) -> None:
    packed = pack(f"<{len(numbers)}Q", *numbers)
    names = pack_names([(at, b"name") for at in range(len(numbers))])
    builder = BatchBuilder()
    builder.add_run_of_one(5, b"w" * 16, 9, 7, flags, packed, len(numbers), names, data)
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
