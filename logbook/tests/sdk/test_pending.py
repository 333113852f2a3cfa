"""Holes that are filled, and what tells two records under one number apart."""

from __future__ import annotations

from boki._arguments import Expectations, encode_tags
from boki._pending import checksum, fill_hole
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RecordBatch


def test_a_hole_is_filled_with_what_joins_nothing() -> None:
    for named in (False, True):
        builder = BatchBuilder()
        builder.start_run(1, b"w" * 16, 3, 3, RUN_NAMED if named else 0)
        fill_hole(builder, named=named)
        batch = RecordBatch.parse(memoryview(b"".join(builder.finish())))
        assert batch.expectations == ([0], [0], [0]), "the book has, or had, a record"
        assert batch.record_count == 1 and len(batch.crcs) == named


def test_records_are_compared_by_all_that_they_contain() -> None:
    a, b = encode_tags(["a"]), encode_tags(["b"])
    said = [
        (a, b"x", Expectations((), {})),
        (b, b"x", Expectations((), {})),
        (a, b"y", Expectations((), {})),
        (a, b"x", Expectations(((1, 0),), {})),
        (a, b"x", Expectations(((1, 2),), {})),
    ]
    assert len({checksum(*one) for one in said}) == len(said)
    assert checksum(*said[0]) == checksum(encode_tags(["a"]), b"x")
