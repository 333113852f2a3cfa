"""`boki_spark.cold(...)`: the files of offloaded terms as a frame that Spark reads by itself, with none of Boki's code in its workers.

What is checked when the frame is made: that each manifest is the truth of the plan (`cold_reads`), that each file is there, and ends as
it was written. When it is read Spark compares each page with its checksum; a file that is gone or cannot be read is an error whatever
the session says of such files, and is raised with a code (`native_faults`).

What died since a term was offloaded is left out: by a few comparisons, or, where there are many such places, by an anti join.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.facts import LIVE
from boki_logbook.scan.plan import NO_SPANS, united
from boki_spark.cluster import Cluster
from boki_spark.cold_reads import ColdFile, check_file, cold_files
from boki_spark.errors import BadOption
from boki_spark.faults import NotOffloaded
from boki_spark.files import Files, OpenFiles
from boki_spark.native_faults import translate_errors_of
from boki_spark.read_options import RECORDS, SCHEMA, ReadOptions, batch_options
from boki_spark.reader import Planning, batch_plan
from boki_spark.stream_planner import loss, lost_spans

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
