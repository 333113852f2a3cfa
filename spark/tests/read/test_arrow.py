"""Arrow batches: every column equals what is read record by record, for any choice of rows and any batch size."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_common.errors import CorruptData  # noqa: E402
from boki_common.records.batch_builder import BatchBuilder  # noqa: E402
from boki_common.records.record_batch import RecordBatch, join  # noqa: E402
from boki_common.records.tag_names import split_payload  # noqa: E402
from boki_logbook.read.compression import compressor  # noqa: E402
from boki_spark.read.arrow import ARROW_SCHEMA, COLUMNS, ArrowBatchBuilder, EntryRows, schema_of  # noqa: E402

W = b"w" * 16


def batch_of(rng: random.Random, records: int, *, names: bool = True, size: int = 40) -> RecordBatch:
    builder = BatchBuilder()
    for at in range(records):
        if at % 5 == 0:
            builder.start_run(rng.choice((7, 2**64 - 2, 9)), rng.randbytes(16), 1, 1, 0)
        tags = [rng.randrange(1, 2**64 - 1) for _ in range(rng.randint(0, 3))]
        named = b"".join(bytes([i, 3]) + b"t/%d" % i for i in range(len(tags)) if names and rng.random() < 0.5)
        head = len(named).to_bytes(2, "little") + named
        builder.add(
            b"".join(tag.to_bytes(8, "little") for tag in tags), len(tags), head, rng.randbytes(rng.randint(0, size))
        )
    return RecordBatch.parse(memoryview(b"".join(builder.finish())))


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def plain(rows: EntryRows) -> list[dict[str, Any]]:
    """Build the rows one record at a time."""
    batch, found = rows.batch, []
    books = [run.book for run in batch.runs for _ in range(run.count)]
    for record, seqnum in zip(rows.chosen.tolist(), rows.seqnums.tolist(), strict=True):
        named, data = split_payload(batch.payload(record))
        tags = batch.record_tags(record).tolist()
        names: list[str | None] = [None] * len(tags)
        for at, name in named:
            names[at] = name
        found.append(
            {
                "seqnum": seqnum,
                "term": seqnum >> 35,
                "pos": seqnum & (2**35 - 1),
                "log": rows.log,
                "book": signed(books[record]),
                "tags": list(map(signed, tags)),
                "tag_names": names,
                "data": bytes(data),
            }
        )
    return found


def rows_of(rng: random.Random, batch: RecordBatch, first: int) -> EntryRows:
    share = rng.choice((0.0, 0.1, 0.5, 1.0))
    chosen = np.flatnonzero(np.array([rng.random() < share or share == 1.0 for _ in range(batch.record_count)]))
    return EntryRows(batch, chosen, log=3, first_seqnum=first, time_ms=1_700_000_000_123)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("batch_bytes", [1, 500, 10**6])
def test_batches_have_the_rows_that_reading_one_by_one_gives(seed: int, batch_bytes: int) -> None:
    rng = random.Random(seed)
    batches, expected, found = ArrowBatchBuilder(batch_bytes=batch_bytes), [], []
    for at in range(5):
        rows = rows_of(rng, batch_of(rng, rng.randint(1, 30)), (7 << 35) + 100 * at)
        expected += plain(rows)
        found += list(batches.add(rows))
    found += list(batches.rest())
    assert all(one.schema.equals(ARROW_SCHEMA) for one in found)
    listed = [row for one in found for row in one.to_pylist()]
    assert {row.pop("time").timestamp() for row in listed} <= {1_700_000_000.123}
    assert listed == expected
    if batch_bytes == 1:
        assert all(one.num_rows == 1 for one in found)


def test_compressed_entries_give_the_same_rows() -> None:
    rng = random.Random(5)
    batch = batch_of(rng, 200, size=0)
    packed = RecordBatch.parse(
        memoryview(b"".join(join([batch], term=1, shard=0, first_local_id=0, compress=compressor())))
    )
    everything = np.arange(200)
    rows, same = (EntryRows(one, everything, log=0, first_seqnum=5, time_ms=1) for one in (batch, packed))
    (one,), (other,) = (list(collected(rows_).rest()) for rows_ in (rows, same))
    assert one.equals(other)


def collected(rows: EntryRows) -> ArrowBatchBuilder:
    batches = ArrowBatchBuilder()
    assert list(batches.add(rows)) == []
    return batches


def test_only_the_columns_that_are_wanted_are_made() -> None:
    rng = random.Random(1)
    batch = batch_of(rng, 20)
    for columns in (("data",), ("pos", "seqnum"), COLUMNS[:3]):
        batches = ArrowBatchBuilder(columns)
        rows = EntryRows(batch, np.arange(20), log=0, first_seqnum=5, time_ms=1)
        (one,) = [*batches.add(rows), *batches.rest()]
        assert one.schema.equals(schema_of(columns)) and one.num_rows == 20


def test_names_that_do_not_fit_their_payload_are_damage() -> None:
    builder = BatchBuilder()
    builder.start_run(7, W, 1, 1, 0)
    builder.add(b"", 0, b"\xff\x00", b"abc")
    batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
    with pytest.raises(CorruptData, match="tag names"):
        EntryRows(batch, np.arange(1), log=0, first_seqnum=5, time_ms=1).data()
