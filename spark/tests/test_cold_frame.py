"""`boki_spark.cold`: native frames of offloaded terms, with what `format("boki")` shows of them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki
import boki_spark
from boki_common.ids import seqnum as make_seqnum
from boki_common.ids import term_of
from boki_spark.cold_frame import SPANS_COMPARED, _literal
from boki_spark.errors import BadOption
from boki_spark.faults import ColdDamaged, ColdMissing, NotOffloaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offload = Callable[[int, Path], str]

pytestmark = [pytest.mark.spark, pytest.mark.alone, pytest.mark.timeout(300)]


def fill(client: boki.sync.Client, name: str, count: int, size: int = 10) -> list[int]:
    """Records 0, 1, … with the tag `even`, or a number, and one of their own; returns their seqnums."""
    noise = np.random.default_rng(1)
    return client.book(name).append_many(
        [
            (b"%d " % at + noise.bytes(size), ["even", f"n/{at}"] if at % 2 == 0 else [7, f"n/{at}"])
            for at in range(count)
        ]
    )


def numbers(found: DataFrame) -> list[int]:
    return sorted(int(bytes(row["data"]).split(b" ")[0]) for row in found.collect())


def rows(found: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row[name] for name in found.columns) for row in found.collect())


def test_offloaded_terms_are_a_native_frame_with_the_rows_that_the_format_shows(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, offload: Offload, tmp_path: Path
) -> None:
    seqnums = fill(client, name, 100)
    client.book(f"{name}-other").append(b"not of this book", tags=["even"])
    term = term_of(seqnums[0])
    offload(term, tmp_path / "cold [1]")
    fill(client, name, 3)
    client.book(name).trim(before=seqnums[4])
    own = {"startingSeqnum": make_seqnum(term, 0), "endingSeqnum": make_seqnum(term + 1, 0)}
    found = boki_spark.cold(spark, url=dev, book=name, whole=True, **own)
    reader = spark.read.format("boki").option("url", dev).option("book", name)
    shown = reader.options(**{key: str(value) for key, value in own.items()}).load()
    assert [(one.name, one.dataType) for one in found.schema.fields] == [
        (one.name, one.dataType) for one in shown.schema.fields
    ]
    assert rows(found) == rows(shown) and numbers(found) == list(range(4, 100))
    assert found.inputFiles() and "BatchScan" not in found._jdf.queryExecution().toString()
    tagged = boki_spark.cold(spark, url=dev, book=name, tags='["even", "n/9"]', whole=True, **own)
    assert numbers(tagged) == sorted([*range(4, 100, 2), 9])
    some = boki_spark.cold(spark, url=dev, book=name, startingSeqnum=seqnums[10], endingSeqnum=seqnums[20])
    assert numbers(some) == list(range(10, 20))
    with pytest.raises(NotOffloaded, match=r"^\[BOKI_NOT_OFFLOADED\] 3 records of term"):
        boki_spark.cold(spark, url=dev, book=name, whole=True)
    assert boki_spark.cold(spark, url=dev, book=f"{name}-none", whole=True).collect() == []
    with pytest.raises(BadOption, match="did you mean startingSeqnum"):
        boki_spark.cold(spark, url=dev, startingSeqnumber=1)
    with pytest.raises(BadOption, match="expected dataset=records"):
        boki_spark.cold(spark, url=dev, dataset="segments")


def test_what_died_since_is_left_out_however_much_it_is(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, offload: Offload, tmp_path: Path
) -> None:
    """Records with two tags die with both of them; so every third one, which is more spans than are compared."""
    book = client.book(name)
    seqnums = book.append_many([(b"%d " % at, ["third" if at % 3 == 0 else "other"]) for at in range(90)])
    offload(term_of(seqnums[0]), tmp_path / "cold")
    kept = boki_spark.cold(spark, url=dev, book=name)
    assert numbers(kept) == list(range(90))
    book.trim(tag="third", before=seqnums[-1] + 1)
    left = [at for at in range(90) if at % 3]
    assert len(left) // 2 > SPANS_COMPARED
    assert numbers(boki_spark.cold(spark, url=dev, book=name)) == left
    assert numbers(kept) == list(range(90)), "a frame is a snapshot"


def test_files_that_are_damaged_or_gone_are_named_and_no_wrong_row_is_shown(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, offload: Offload, tmp_path: Path
) -> None:
    seqnums = fill(client, name, 2_000, 200)
    offload(term_of(seqnums[0]), tmp_path / "cold")
    (file,) = (tmp_path / "cold").rglob("*.parquet")
    whole = file.read_bytes()
    for body in (whole[:-1], whole[: len(whole) // 2], b"", whole[:-20] + b"\0" * 12 + whole[-8:], whole + b"\0"):
        file.write_bytes(body)
        with pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\].*slice-000000.parquet"):
            boki_spark.cold(spark, url=dev, book=name)
    file.write_bytes(whole)
    damaged, gone = (boki_spark.cold(spark, url=dev, book=name) for _ in range(2))
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        file.write_bytes(whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :])
        with pytest.raises(Exception, match=r"(?i)checksum"):
            damaged.collect()
        file.unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST"):
            gone.collect()
    finally:
        spark.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
        spark.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
        boki_spark.cold(spark, url=dev, book=name)
    file.write_bytes(whole)
    assert numbers(boki_spark.cold(spark, url=dev, book=name)) == list(range(2_000))


def test_a_path_is_taken_as_it_is_written() -> None:
    assert _literal("file:///a b/[x]*{y}?") == "file:///a b/\\[x\\]\\*\\{y\\}\\?"
