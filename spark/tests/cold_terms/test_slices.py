"""Slices: sorted rows, a sum independent of their order, and a file that keeps them."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from xxhash import xxh3_128_intdigest  # noqa: E402

from boki_spark.cold_terms.slices import (  # noqa: E402
    added,
    parquet_of,
    row_sum,
    sorted_table,
    table_of,
)
from boki_spark.errors import ColdDamaged  # noqa: E402
from boki_spark.read.arrow import ARROW_SCHEMA  # noqa: E402

BOOKS, TAGS = (-5, 3, 9), (-7, 1, 2, 3)


def rows(seed: int, count: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    found = []
    for at in range(count):
        tags = rng.sample(TAGS, rng.randint(0, 3))
        names = [None if rng.random() < 0.5 else f"t{tag}" for tag in tags]
        found.append(
            {
                "seqnum": (1 << 35) + at, "term": 1, "pos": at, "log": 0, "book": rng.choice(BOOKS), "tags": tags,
                "tag_names": names, "data": rng.randbytes(rng.randint(0, 30)), "time": 1_000_000 * at,
            }
        )  # fmt: skip
    return found


def batches(those: list[dict[str, Any]]) -> list[Any]:
    return [pa.RecordBatch.from_pylist(those[at : at + 30], schema=ARROW_SCHEMA) for at in range(0, len(those), 30)]


def key(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["book"], row["tags"][0] if row["tags"] else 0, row["seqnum"]


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_sorted_by_book_first_tag_and_seqnum_and_survive_the_file(seed: int) -> None:
    those = rows(seed)
    table = sorted_table(batches(those))
    again = table_of(parquet_of(table), "x")
    assert again.equals(table)
    found = again.to_pylist()
    assert found == sorted(found, key=key) and len(found) == len(those)
    assert {row["seqnum"] for row in found} == {row["seqnum"] for row in those}


def test_the_sum_is_of_rows_and_not_of_their_order() -> None:
    those = rows(1)
    shuffled = random.Random(2).sample(those, len(those))
    total = row_sum(pa.Table.from_batches(batches(those)))
    assert total == row_sum(pa.Table.from_batches(batches(shuffled)))
    parts = [row_sum(pa.Table.from_batches(batches(part))) for part in (those[:70], those[70:])]
    assert added(*parts) == total


def plain_sum(those: list[dict[str, Any]]) -> int:
    """Compute the sum row by row, as the format defines it."""
    total = 0
    for row in those:
        names = b"".join(b"\0" if name is None else b"\1%d:" % len(name) + name.encode() for name in row["tag_names"])
        head = struct.pack("<QQqII", row["seqnum"], row["book"] % 2**64, row["time"], len(row["tags"]), len(names))
        tags = b"".join(struct.pack("<q", tag) for tag in row["tags"])
        total += xxh3_128_intdigest(head + tags + names + row["data"])
    return total % 2**128


@pytest.mark.parametrize("named", [True, False])
def test_the_sum_is_that_of_the_format_in_parts_of_tables_too(named: bool) -> None:
    those = [row if named else {**row, "tag_names": [None] * len(row["tags"])} for row in rows(3)]
    table = pa.Table.from_batches(batches(those)).combine_chunks()
    assert row_sum(table) == plain_sum(those) and row_sum(table.slice(50, 60)) == plain_sum(those[50:110])
    assert row_sum(table.slice(0, 0)) == 0


@pytest.mark.parametrize(
    "change",
    [{"data": b"other"}, {"book": 1}, {"tags": [4]}, {"seqnum": 5}, {"time": 1}, {"tag_names": ["x"]}],
)
def test_any_change_of_a_row_changes_the_sum(change: dict[str, Any]) -> None:
    row = {**rows(1)[0], "tags": [3], "tag_names": [None]}
    one, other = (row_sum(pa.Table.from_batches(batches([version]))) for version in (row, {**row, **change}))
    assert one != other


def test_a_slice_without_rows_is_a_file_too() -> None:
    table = sorted_table([])
    assert table_of(parquet_of(table), "x").num_rows == 0 and row_sum(table) == 0


def test_damage_is_raised_with_the_name_of_the_file() -> None:
    data = parquet_of(sorted_table(batches(rows(1))))
    for damaged in (b"", data[:-1], data[:-9], data[: len(data) // 2]):
        with pytest.raises(ColdDamaged, match="slice-7"):
            table_of(damaged, "slice-7")
    other = pa.table({"x": [1]})
    with pytest.raises(ColdDamaged, match="other columns"):
        table_of(parquet_of(other), "slice-7")
