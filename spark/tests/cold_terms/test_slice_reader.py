"""Reads of parts of slices: the right rows from few bytes, and every changed byte is detected."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from xxhash import xxh3_128_hexdigest  # noqa: E402

from boki_spark.cold_terms import slice_index, slices  # noqa: E402
from boki_spark.cold_terms.files import MemoryFiles  # noqa: E402
from boki_spark.cold_terms.manifest import SliceFile  # noqa: E402
from boki_spark.cold_terms.slice_index import end_of, index_of  # noqa: E402
from boki_spark.cold_terms.slice_reader import SliceReader  # noqa: E402
from boki_spark.cold_terms.slices import parquet_of, sorted_table  # noqa: E402
from boki_spark.errors import ColdDamaged, ColdMissing  # noqa: E402
from boki_spark.read.arrow import ARROW_SCHEMA, COLUMNS  # noqa: E402

BOOKS, TAGS = (-5, 3, 9), (-7, 1, 2, 3, 8)


def rows(seed: int, count: int = 200, size: int = 30) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    found = []
    for at in range(count):
        tags = rng.sample(TAGS, rng.randint(0, 3))
        found.append(
            {
                "seqnum": (1 << 35) + at, "term": 1, "pos": at, "log": 0, "book": rng.choice(BOOKS), "tags": tags,
                "tag_names": [None] * len(tags), "data": rng.randbytes(rng.randint(0, size)), "time": 1_000_000 * at,
            }
        )  # fmt: skip
    return found


class Slice:
    """A slice in files in memory."""

    def __init__(self, those: list[dict[str, Any]]) -> None:
        self.table = sorted_table([pa.RecordBatch.from_pylist(those, schema=ARROW_SCHEMA)])
        data = parquet_of(self.table)
        index, end = index_of(self.table, data), end_of(data)
        self.files = MemoryFiles()
        self.files.files.update({"f/a.parquet": data, "f/a.index": index.data})
        self.file = SliceFile(
            "a.parquet", len(data), "", len(end), xxh3_128_hexdigest(end), "a.index", len(index.data), "",
            index.head_bytes, xxh3_128_hexdigest(index.data[: index.head_bytes]), len(those), 0, len(those),
        )  # fmt: skip

    async def read(self, **wanted: Any) -> tuple[list[dict[str, Any]], int]:
        """Return the rows of the row groups that may match, and the number of bytes read for them."""
        reader = SliceReader(self.files, "f", self.file)
        found: list[dict[str, Any]] = []
        async for table in reader.tables(await reader.groups(**wanted), COLUMNS):
            found += table.to_pylist()
        return found, reader.bytes_read


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks and row groups of a few rows."""
    monkeypatch.setattr(slice_index, "BLOCK_ROWS", 4)
    monkeypatch.setattr(slices, "GROUP_ROWS", 7)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(4))
async def test_row_groups_of_a_tag_have_all_its_rows_and_few_others(seed: int) -> None:
    made = Slice(rows(seed))
    everything = made.table.to_pylist()
    assert (await made.read())[0] == everything
    for book in BOOKS:
        for tags in ((1,), (2, 3), (-7,), (99,)):
            found, _ = await made.read(book=book % 2**64, tags=[tag % 2**64 for tag in tags])
            wanted = [row for row in everything if set(tags) & set(row["tags"]) and row["book"] == book]
            assert [row for row in found if row in wanted] == wanted
            assert len(found) <= 7 * len(wanted), "a row group has 7 rows, and one that is wanted"


@pytest.mark.usefixtures("small")
async def test_row_groups_of_a_book_or_of_places_have_all_their_rows() -> None:
    made = Slice(rows(7))
    everything = made.table.to_pylist()
    found, _ = await made.read(book=3)
    wanted = [row for row in everything if row["book"] == 3]
    assert [row for row in found if row["book"] == 3] == wanted and len(found) <= len(wanted) + 14
    spans = np.array([[(1 << 35) + 10, (1 << 35) + 12]], np.uint64)
    found, _ = await made.read(seqnums=spans)
    assert {10, 11} <= {row["pos"] for row in found}
    assert (await made.read(seqnums=spans + np.uint64(10**6)))[0] == []


async def test_one_tag_of_a_thousand_is_read_from_a_twentieth_of_the_bytes() -> None:
    noise = random.Random(1)
    those = [{**row, "book": 3, "tags": [1 + at % 1000], "tag_names": [None]} for at, row in enumerate(rows(1, 20_000))]
    for row in those:
        row["data"] = noise.randbytes(1_000)
    made = Slice(those)
    found, tag_bytes = await made.read(book=3, tags=[500])
    assert sum(row["tags"] == [500] for row in found) == 20
    _, all_bytes = await made.read()
    assert tag_bytes * 10 < all_bytes, "the less, the larger a slice is: here it has 20 MB of 64"


@pytest.mark.usefixtures("small")
async def test_any_byte_that_changes_is_reported_or_was_not_needed() -> None:
    """Every read returns the rows that were written, or names a file as damaged."""
    made = Slice(rows(5, 60))
    wanted: dict[str, Any] = {"book": 3, "tags": [1, 8]}
    right, _ = await made.read(**wanted)

    async def error_text() -> str:
        try:
            assert (await made.read(**wanted))[0] == right
        except ColdDamaged as error:
            return str(error)
        return ""

    named = 0
    for path in sorted(made.files.files):
        whole = made.files.files[path]
        damaged = [whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :] for at in range(0, len(whole), 31)]
        for body in (*damaged, b"", whole[:-1], whole[: len(whole) // 2]):
            made.files.files[path] = body
            text = await error_text()
            named += path in text
            assert not text or path in text
        made.files.files[path] = whole
    assert named > 20
    del made.files.files["f/a.index"]
    with pytest.raises(ColdMissing):
        await made.read(**wanted)


async def test_a_slice_without_rows_has_no_groups() -> None:
    made = Slice([])
    assert await made.read() == ([], made.file.footer_bytes + made.file.head_bytes)
    assert await made.read(book=3, tags=[1]) == ([], made.file.footer_bytes + made.file.head_bytes)
