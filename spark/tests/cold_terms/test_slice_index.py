"""Side indexes: the rows of a tag from few blocks, the rows of seqnums, and refused bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_spark.cold_terms import slice_index  # noqa: E402
from boki_spark.cold_terms.slice_index import (  # noqa: E402
    IndexBlock,
    chunks_of,
    decode_head,
    end_of,
    footer_of,
    index_of,
    rows_of,
    seqnum_rows,
)
from boki_spark.cold_terms.slices import parquet_of, sorted_table  # noqa: E402
from boki_spark.errors import ColdDamaged  # noqa: E402
from boki_spark.read.arrow import ARROW_SCHEMA  # noqa: E402

BOOKS, TAGS = (-5, 3), tuple(range(-10, 10))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of a few rows."""
    monkeypatch.setattr(slice_index, "BLOCK_ROWS", 4)


def table(seed: int, count: int = 100) -> Any:
    rng = random.Random(seed)
    found = []
    for at in range(count):
        tags = rng.sample(TAGS, rng.randint(0, 3))
        found.append(
            {
                "seqnum": (1 << 35) + at, "term": 1, "pos": at, "log": 0, "book": rng.choice(BOOKS), "tags": tags,
                "tag_names": [None] * len(tags), "data": b"x", "time": 1_000_000 * at,
            }
        )  # fmt: skip
    return sorted_table([pa.RecordBatch.from_pylist(found, schema=ARROW_SCHEMA)])


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_tags_are_found_by_the_blocks_that_the_head_names(seed: int) -> None:
    made = table(seed)
    index, head_bytes = index_of(made, parquet_of(made))
    head = decode_head(index[:head_bytes], "x")
    everything = made.to_pylist()

    def part(block: IndexBlock) -> bytes:
        return index[block.first : block.stop]

    for book in (*BOOKS, 77):
        for tags in ((1,), (2, 3), (-7, 9), (99,), TAGS):
            unsigned = [tag % 2**64 for tag in tags]
            streams = head.stream_blocks(head_bytes, book % 2**64, unsigned)
            assert len(streams) <= len(tags)
            spans = [span for at, block in streams for span in head.spans_in(at, part(block), book % 2**64, unsigned)]
            rows = {at: part(block) for at, block in head.row_blocks(head_bytes, spans)}
            expected = [at for at, row in enumerate(everything) if set(tags) & set(row["tags"]) and row["book"] == book]
            assert rows_of(spans, rows).tolist() == expected


def test_seqnums_have_their_rows() -> None:
    made = table(3)
    index, head_bytes = index_of(made, parquet_of(made))
    head = decode_head(index[:head_bytes], "x")
    block = head.seqnums_block(head_bytes)
    assert block.stop == len(index)
    found = made.to_pylist()
    asked = np.array([row["seqnum"] for row in found[::3]] + [7], np.int64)
    places, here = seqnum_rows(index[block.first : block.stop], head.row_count, asked)
    assert places.tolist() == list(range(0, len(found), 3)) and here.tolist() == [True] * (len(asked) - 1) + [False]


def test_a_footer_has_where_columns_are_and_a_damaged_one_is_named() -> None:
    data = parquet_of(table(1))
    end = end_of(data)
    chunks = chunks_of(footer_of(end, "x"))
    assert len(chunks) == len(ARROW_SCHEMA) and sorted(chunks) == chunks and chunks[-1][1] <= len(data) - len(end)
    with pytest.raises(ColdDamaged, match="slice-7"):
        footer_of(end[5:], "slice-7")


def test_what_is_no_side_index_is_damage() -> None:
    made = table(1)
    index, head_bytes = index_of(made, parquet_of(made))
    for body in (b"", b"\x90", index[: head_bytes - 5]):
        with pytest.raises(ColdDamaged, match="slice-7"):
            decode_head(body, "slice-7")
