"""`boki_spark.cold`: native frames of offloaded terms, with exactly the rows that `format("boki")` shows for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from py4j import java_gateway
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import boki
import boki_spark
from boki_common.ids import seqnum as make_seqnum
from boki_common.ids import term_of
from boki_spark.errors import BadOption, ColdDamaged, ColdMissing, NotOffloaded
from boki_spark.source.cold_frame import SPANS_COMPARED, _literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offload = Callable[[int, Path], str]
Damage = Callable[[bytes], bytes]

pytestmark = [pytest.mark.spark, pytest.mark.alone, pytest.mark.timeout(900)]


def fill(client: boki.sync.Client, name: str, count: int, size: int = 10) -> list[int]:
    """Append records 0, 1, … with the tag `even` or a number, and a tag of their own, and return their seqnums."""
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
    expected = reader.options(**{key: str(value) for key, value in own.items()}).load()
    assert [(one.name, one.dataType) for one in found.schema.fields] == [
        (one.name, one.dataType) for one in expected.schema.fields
    ]
    assert rows(found) == rows(expected) and numbers(found) == list(range(4, 100))
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
    """Every third record dies, which makes more spans than are compared."""
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


def changed(at: float) -> Damage:
    """Return a damage that flips one bit at a fraction of a file."""

    def damage(whole: bytes) -> bytes:
        place = int(at * len(whole))
        return whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]

    return damage


END_DAMAGED: dict[str, Damage] = {
    "a byte short": lambda whole: whole[:-1],
    "half of it": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "its footer zeroed": lambda whole: whole[:-20] + bytes(12) + whole[-8:],
    "a byte more": lambda whole: whole + b"\0",
    "no Parquet": lambda whole: b"x" * len(whole),
}
PAGES_DAMAGED: dict[str, Damage] = {
    "a bit in the middle": changed(0.5),
    "a bit near the end": changed(0.9),
    "a hole": lambda whole: whole[: len(whole) // 3] + bytes(4_096) + whole[len(whole) // 3 + 4_096 :],
}
AFTERWARDS: dict[str, Damage] = {**END_DAMAGED, **PAGES_DAMAGED}
ACTIONS: dict[str, Callable[[DataFrame], object]] = {
    "collect": lambda frame: frame.collect(),
    "write": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "one by one": lambda frame: list(frame.toLocalIterator()),
    "an aggregate of a join": lambda frame: (
        frame.join(frame.select("seqnum", "data").withColumnRenamed("data", "other"), "seqnum")
        .selectExpr("max(data)", "max(other)")
        .collect()
    ),
}


@pytest.fixture
def cold_file(
    dev: str, client: boki.sync.Client, name: str, offload: Offload, tmp_path: Path
) -> Callable[[], tuple[Path, bytes]]:
    """Return a function that makes a book of one offloaded file, and returns the file and its bytes."""

    def make() -> tuple[Path, bytes]:
        seqnums = fill(client, name, 2_000, 200)
        offload(term_of(seqnums[0]), tmp_path / "cold")
        (file,) = (tmp_path / "cold").rglob("*.parquet")
        return file, file.read_bytes()

    return make


def test_a_file_that_is_damaged_at_its_end_or_gone_makes_no_frame(
    spark: SparkSession, dev: str, name: str, cold_file: Callable[[], tuple[Path, bytes]]
) -> None:
    file, whole = cold_file()
    for what, damage in END_DAMAGED.items():
        file.write_bytes(damage(whole))
        with pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\].*slice-000000.parquet"):
            boki_spark.cold(spark, url=dev, book=name)
            pytest.fail(what)
    file.unlink()
    with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
        boki_spark.cold(spark, url=dev, book=name)
    file.write_bytes(whole)
    (manifest,) = file.parent.glob("manifest-*.json")
    text = manifest.read_bytes()
    manifest.write_bytes(text[:-2] + b" }")
    with pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\] expected manifest-"):
        boki_spark.cold(spark, url=dev, book=name)
    manifest.unlink()
    with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
        boki_spark.cold(spark, url=dev, book=name)
    manifest.write_bytes(text)
    assert numbers(boki_spark.cold(spark, url=dev, book=name)) == list(range(2_000))


def test_what_happens_to_a_file_of_a_native_frame_later_is_raised_with_a_code(
    spark: SparkSession, dev: str, name: str, cold_file: Callable[[], tuple[Path, bytes]]
) -> None:
    """The session's settings about damaged and missing files do not matter, nor does the action."""
    file, whole = cold_file()
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        for what, damage in AFTERWARDS.items():
            frame = boki_spark.cold(spark, url=dev, book=name)
            file.write_bytes(damage(whole))
            with pytest.raises(ColdDamaged, match=r"^\[BOKI_COLD_DAMAGED\].*slice-000000.parquet"):
                frame.collect()
                pytest.fail(what)
            file.write_bytes(whole)
        frame = boki_spark.cold(spark, url=dev, book=name)
        for damaged in (AFTERWARDS["a bit in the middle"](whole), None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            for what, act in ACTIONS.items():
                with pytest.raises((ColdMissing, ColdDamaged), match=r"^\[BOKI_COLD_(MISSING|DAMAGED)\]") as caught:
                    act(frame)
                    pytest.fail(what)
                assert isinstance(caught.value, ColdMissing) == (damaged is None)
    finally:
        spark.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
        spark.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    file.write_bytes(whole)
    assert numbers(boki_spark.cold(spark, url=dev, book=name)) == list(range(2_000))


def test_frames_of_others_keep_the_errors_of_spark_and_the_client_of_py4j(
    spark: SparkSession, dev: str, name: str, cold_file: Callable[[], tuple[Path, bytes]]
) -> None:
    """The same damaged file is read by a cold frame and by plain frames of the same session and of another one."""
    file, whole = cold_file()
    others = [session.read.parquet(f"file://{file}") for session in (spark, spark.newSession())]
    before = java_gateway.get_return_value
    frame = boki_spark.cold(spark, url=dev, book=name)
    others.append(others[0].join(frame.select("seqnum"), "seqnum"))
    file.write_bytes(AFTERWARDS["half of it"](whole))
    try:
        with pytest.raises(ColdDamaged):
            frame.collect()
        with pytest.raises(ColdDamaged):
            frame.union(frame).groupBy("log").count().collect()
        for other in others:
            with pytest.raises((Py4JError, PySparkException), match=r"slice-000000\.parquet"):
                other.collect()
            assert other._jdf._gateway_client is spark.sparkContext._gateway._gateway_client
        assert java_gateway.get_return_value is before
    finally:
        file.write_bytes(whole)


def test_a_path_is_taken_as_it_is_written() -> None:
    assert _literal("file:///a b/[x]*{y}?") == "file:///a b/\\[x\\]\\*\\{y\\}\\?"
