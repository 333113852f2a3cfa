"""`boki_spark.cold(...)`: the files of offloaded terms as a frame that Spark reads by itself, with none of Boki's code in its workers.

What is checked when the frame is made: that each manifest is the truth of the plan (`cold_reads`), that each file is there, and ends as
it was written. When it is read Spark compares each page with its checksum; a file that is gone or cannot be read is an error whatever
the session says of such files, and is raised with a code (`native_faults`).

What died since a term was offloaded is left out: by a few comparisons, or, where there are many such places, by an anti join.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from xxhash import xxh3_128_hexdigest

from boki_common.runtime.loop_thread import LoopThread
from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.facts import LIVE
from boki_logbook.scan.plan import NO_SPANS, united
from boki_spark.cold_terms.cold_reads import ColdFile, check_file, cold_files
from boki_spark.cold_terms.files import Files, OpenFiles
from boki_spark.errors import BadOption, ClusterAway, ColdDamaged, ColdMissing, NotOffloaded, ReadFault
from boki_spark.plan.cluster import Cluster
from boki_spark.plan.read_options import RECORDS, SCHEMA, ReadOptions, batch_options
from boki_spark.plan.stream_planner import loss, lost_spans
from boki_spark.source.reader import Planning, batch_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPANS_COMPARED: Final = 16
"""More places that are left out are joined with."""
FILES_AT_ONCE: Final = 16
STRICT: Final = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
FILES_KNOWN: Final = 65_536
"""Of cold frames of one process; those that were made last."""
FROM_SPARK: Final = ("py4j.", "pyspark.")
"""Modules of its errors."""
_NAME: Final = re.compile(r"term-\d+/v\d+-[0-9a-f]+/slice-\d+\.parquet")
"""How an attempt names a file: no other attempt has the same, wherever it is and however a path is written."""
_NOT_READ: Final = "FAILED_READ_FILE"
_HALF: Final = 2**63


def cold_frame(spark: SparkSession, options: Mapping[str, str], *, whole: bool) -> DataFrame:
    """See `boki_spark.cold`."""
    chosen = batch_options(options)
    if chosen.dataset != RECORDS:
        raise BadOption(f"expected dataset={RECORDS}: files have nothing else, found {chosen.dataset}")
    with Planning(chosen) as planning:
        files = planning.run(chosen_files(planning.cluster, OpenFiles(), chosen, whole=whole))
    translate_errors_of(files)
    return frame_of(spark, files, chosen)


async def chosen_files(cluster: Cluster, files: Files, options: ReadOptions, *, whole: bool) -> list[ColdFile]:
    """The files that have what options name, each looked at; what they leave out is what the range has not, of any book.

    Raises:
        NotOffloaded, DataLoss. As `cold_reads.cold_files`, `check_file` and `Cluster.plan`.
    """
    everything = dataclasses.replace(options, book=None, tags=())
    plan = await batch_plan(cluster, everything, LIVE)
    asked = plan
    if everything != options:
        asked = await cluster.plan(plan.asked._replace(book=options.book, tags=options.tags), LIVE)
    lost = lost_spans(asked)
    if lost and options.fail_on_data_loss:
        raise loss(lost)
    found, rest = await cold_files(cluster, files, plan)
    if whole:
        there = {one.facts.term: one.row_count for one in asked.terms}
        left = {one.facts.term: there[one.facts.term] for one in rest.terms if there.get(one.facts.term)}
        if left:
            raise NotOffloaded(
                f"{sum(left.values())} records of term {', '.join(map(str, sorted(left)))} are in ledgers only: read them with "
                'format("boki"), or end the term (boki log roll) and offload it (boki offload)'
            )
    for at in range(0, len(found), FILES_AT_ONCE):
        await asyncio.gather(*(check_file(files, one) for one in found[at : at + FILES_AT_ONCE]))
    return found


def frame_of(spark: SparkSession, files: Sequence[ColdFile], options: ReadOptions) -> DataFrame:
    """The rows of files without what they leave out, of a book and with one of some tags."""
    from pyspark.sql import functions as F

    if not files:
        return spark.createDataFrame([], SCHEMA)
    as_they_are = [one.path for one in files if not len(one.left_out)]
    without = [one for one in files if len(one.left_out)]
    frame = _parquet(spark, as_they_are) if as_they_are else None
    if without:
        hidden = united(np.concatenate([NO_SPANS, *(one.left_out for one in without)]))
        rest = _without(spark, _parquet(spark, [one.path for one in without]), hidden)
        frame = rest if frame is None else frame.union(rest)
    assert frame is not None
    if options.book is not None:
        frame = frame.where(F.col("book") == F.lit(_signed(options.book)))
    if options.tags:
        frame = frame.where(F.arrays_overlap(F.col("tags"), F.array(*(F.lit(_signed(tag)) for tag in options.tags))))
    return frame


def _parquet(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(SCHEMA)
    for name, value in STRICT.items():
        reader = reader.option(name, value)
    frame: DataFrame = reader.parquet(*map(_literal, paths))
    return frame


def _literal(path: str) -> str:
    """A path in which Spark sees no pattern."""
    return "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in path)


def _without(spark: SparkSession, frame: DataFrame, hidden: U64) -> DataFrame:
    """Rows whose seqnums are in none of ascending spans."""
    if len(hidden) <= SPANS_COMPARED:
        for first, stop in hidden.tolist():
            frame = frame.where(f"NOT (seqnum >= {first} AND seqnum < {stop})")
        return frame
    spans = spark.createDataFrame(hidden.astype(np.int64).tolist(), "first bigint, stop bigint")
    seqnums = spans.selectExpr("explode(sequence(first, stop - 1)) AS seqnum")
    joined: DataFrame = frame.join(seqnums, "seqnum", "left_anti")
    return joined.select(*frame.columns)


def _signed(number: int) -> int:
    return number - 2 * _HALF if number >= _HALF else number


# -- errors of Spark


class Known(NamedTuple):
    """A file, and its hash."""

    path: str
    hash: str


class KnownFiles:
    """Files of cold frames, by the end of their names."""

    def __init__(self, limit: int = FILES_KNOWN) -> None:
        self._limit = limit
        self._files: OrderedDict[str, Known] = OrderedDict()

    def add(self, files: Iterable[ColdFile]) -> None:
        """More of them; the oldest are forgotten."""
        for one in files:
            found = _NAME.search(one.path)
            if found is not None:
                self._files[found[0]] = Known(one.path, one.slice.hash)
                self._files.move_to_end(found[0])
        while len(self._files) > self._limit:
            self._files.popitem(last=False)

    def named_in(self, text: str) -> Known | None:
        """The first file that a text names."""
        names = (name for name in _NAME.findall(text) if name in self._files)
        return self._files.get(next(names, ""))


async def fault_of(files: Files, one: Known, message: str) -> ReadFault | None:
    """What is wrong with a file that an error of Spark names; None: nothing, and by Spark it could be read."""
    try:
        data = await files.read(one.path)
    except ColdMissing:
        return ColdMissing(
            f"there is no file {one.path} any more: make the frame again; if its term has not died, restore the file or offload again"
        )
    except ClusterAway as error:
        return error
    if xxh3_128_hexdigest(data) != one.hash:
        return ColdDamaged(f"{one.path} is not what was written: offload the term again")
    if _NOT_READ in message:
        return ClusterAway(
            f"Spark could not read {one.path}, which is whole as seen from here: make the frame again; workers must reach the file by the "
            "same URL; the error of Spark is the cause of this one"
        )
    return None


class _ErrorTranslator:
    """In the place of py4j's function that gives what Java returned, or raises what it raised."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self._inner = inner
        self.files = KnownFiles()

    def __call__(self, *args: Any, **how: Any) -> Any:
        try:
            return self._inner(*args, **how)
        except Exception as error:
            fault = self._coded(error)
            if fault is None:
                raise
            raise fault from error

    def _coded(self, error: Exception) -> ReadFault | None:
        if not type(error).__module__.startswith(FROM_SPARK):
            return None
        message = str(error)
        named = self.files.named_in(message)
        if named is None:
            return None
        thread = LoopThread("boki_spark.cold_frame")
        try:
            return thread.run(fault_of(OpenFiles(), named, message))
        finally:
            thread.stop()


def translate_errors_of(files: Iterable[ColdFile]) -> None:
    """From now on errors of Spark that name one of these files have a code. Idempotent."""
    from py4j import java_gateway

    translator = java_gateway.get_return_value
    if not isinstance(translator, _ErrorTranslator):
        translator = java_gateway.get_return_value = _ErrorTranslator(translator)
    translator.files.add(files)
