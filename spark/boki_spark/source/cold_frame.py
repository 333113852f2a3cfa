"""Native frames of offloaded terms: `boki_spark.cold` reads their Parquet files with Spark's own reader, without Python workers.

When a frame is made, each manifest is compared with the plan (`cold_reads`), and the end of each file with its manifest. When it is
read, Spark verifies the checksum of each page; a missing or damaged file is an error whatever the session's settings say about such
files. Records that died after their term was offloaded are left out: by a few comparisons, or by an anti join if there are many spans.

Spark raises errors of its own for these files. Each frame therefore has a gateway client that forwards every call to py4j's and looks
at the errors that come back. If an error names a file of a cold frame of the session, the driver reads that file and compares it with
the hash in its manifest. A missing file is raised as ColdMissing, a changed one as ColdDamaged, and an intact one that Spark could not
read as ClusterAway; the error of Spark is the cause. py4j hands the client on to every Java object that a call on such an object
returns, so derived frames, their writers and iterators have it too. Nothing of py4j or pyspark is replaced: all other objects of the
session, and other sessions, keep py4j's own client and Spark's own errors.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from xxhash import xxh3_128_hexdigest

from boki_common.runtime.loop_thread import LoopThread
from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.facts import LIVE
from boki_logbook.scan.plan import NO_SPANS, Plan, united
from boki_spark.cold_terms.cold_reads import ColdFile, check_file, cold_files
from boki_spark.cold_terms.files import Files, FsspecFiles
from boki_spark.errors import BadOption, ClusterAway, ColdDamaged, ColdMissing, NotOffloaded, ReadFault
from boki_spark.plan.blocking_cluster import BlockingCluster
from boki_spark.plan.cluster import Cluster
from boki_spark.plan.options import signed_id
from boki_spark.plan.read_options import RECORDS, SCHEMA, ReadOptions, batch_options
from boki_spark.plan.stream_planner import loss, lost_spans
from boki_spark.source.reader import batch_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPANS_COMPARED: Final = 16
"""The largest number of hidden spans that become comparisons; more are joined with."""
FILES_AT_ONCE: Final = 16
"""Files that are checked at the same time."""
FILES_REMEMBERED: Final = 65_536
"""Files of the cold frames of a session whose hashes are kept; the least recently used are forgotten."""
STRICT: Final = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""Options of Spark's Parquet reader."""
FROM_SPARK: Final = ("py4j.", "pyspark.")
"""Modules of the errors that Spark raises in Python."""
_NAME: Final = re.compile(r"term-\d+/v\d+-[0-9a-f]+/slice-\d+\.parquet")
"""The end of a file's path. It has the random name of its attempt, so it is unique however the rest of the path is written."""
_NOT_READ: Final = "FAILED_READ_FILE"
_CALL: Final = "c"
"""py4j's command that calls a method: c, the id of the object, the name of the method and the arguments, a line each."""


def cold_frame(spark: SparkSession, options: Mapping[str, str], *, whole: bool) -> DataFrame:
    """Return the frame of `boki_spark.cold`, which documents it."""
    chosen = batch_options(options)
    if chosen.dataset != RECORDS:
        raise BadOption(f"expected dataset={RECORDS}, the only one in files, found {chosen.dataset}")
    with BlockingCluster(chosen.cluster) as blocking:
        files = blocking.run(chosen_files(blocking.cluster, FsspecFiles(), chosen, whole=whole))
    errors = _errors_of(spark)
    errors.files.add(files)
    with errors.translated():
        frame = frame_of(spark, files, chosen)
    return with_translated_errors(frame, errors)


async def chosen_files(cluster: Cluster, files: Files, options: ReadOptions, *, whole: bool) -> list[ColdFile]:
    """Return the files with records of the range, each checked. What a file hides does not depend on book and tags.

    Raises:
        NotOffloaded: with `whole`, some records that the options ask for are in ledgers only.
        DataLoss: some of them were given up.
        PipelineError: as `cold_files`, `check_file` and `Cluster.plan`.
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
        _check_offloaded(asked, rest)
    for at in range(0, len(found), FILES_AT_ONCE):
        await asyncio.gather(*(check_file(files, one) for one in found[at : at + FILES_AT_ONCE]))
    return found


def _check_offloaded(asked: Plan, rest: Plan) -> None:
    """Raise NotOffloaded if the plan of the rest has rows that were asked for."""
    there = {one.facts.term: one.row_count for one in asked.terms}
    left = {one.facts.term: there[one.facts.term] for one in rest.terms if there.get(one.facts.term)}
    if left:
        raise NotOffloaded(
            f"{sum(left.values())} records of term {', '.join(map(str, sorted(left)))} are in ledgers only: read them with "
            'format("boki"), or end the term (boki log roll) and offload it (boki offload)'
        )


def frame_of(spark: SparkSession, files: Sequence[ColdFile], options: ReadOptions) -> DataFrame:
    """Return the rows of files that are not hidden, filtered by the book and tags of the options."""
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
        frame = frame.where(F.col("book") == F.lit(signed_id(options.book)))
    if options.tags:
        frame = frame.where(F.arrays_overlap(F.col("tags"), F.array(*(F.lit(signed_id(tag)) for tag in options.tags))))
    return frame


def _parquet(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(SCHEMA)
    for name, value in STRICT.items():
        reader = reader.option(name, value)
    frame: DataFrame = reader.parquet(*map(_literal, paths))
    return frame


def _literal(path: str) -> str:
    """Escape the letters of a path that Spark would read as a pattern."""
    return "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in path)


def _without(spark: SparkSession, frame: DataFrame, hidden: U64) -> DataFrame:
    """Leave out the rows whose seqnums lie in ascending spans."""
    if len(hidden) <= SPANS_COMPARED:
        for first, stop in hidden.tolist():
            frame = frame.where(f"NOT (seqnum >= {first} AND seqnum < {stop})")
        return frame
    spans = spark.createDataFrame(hidden.astype(np.int64).tolist(), "first bigint, stop bigint")
    seqnums = spans.selectExpr("explode(sequence(first, stop - 1)) AS seqnum")
    joined: DataFrame = frame.join(seqnums, "seqnum", "left_anti")
    return joined.select(*frame.columns)


# -- errors of Spark


class HashedFile(NamedTuple):
    """The path of a file of a cold frame, and the hash that its manifest has."""

    path: str
    hash: str


class RememberedFiles:
    """Files of the cold frames of a session, by the unique ends of their paths."""

    def __init__(self, limit: int = FILES_REMEMBERED) -> None:
        self._limit = limit
        self._files: OrderedDict[str, HashedFile] = OrderedDict()

    def add(self, files: Iterable[ColdFile]) -> None:
        """Remember files; forget the oldest beyond the limit."""
        for one in files:
            found = _NAME.search(one.path)
            if found is not None:
                self._files[found[0]] = HashedFile(one.path, one.slice.hash)
                self._files.move_to_end(found[0])
        while len(self._files) > self._limit:
            self._files.popitem(last=False)

    def named_in(self, text: str) -> HashedFile | None:
        """Return the first remembered file that a text names."""
        names = (name for name in _NAME.findall(text) if name in self._files)
        return self._files.get(next(names, ""))


async def fault_of(files: Files, one: HashedFile, message: str) -> ReadFault | None:
    """Return the fault of a file that an error of Spark names, or None if the file is intact and Spark could read it."""
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
            f"Spark could not read {one.path}, which is intact as seen from the driver: make the frame again; workers must reach the file "
            "by the same URL; the error of Spark is the cause of this one"
        )
    return None


class SparkErrors:
    """Translates errors of Spark that name a remembered file.

    Attributes:
        files: the files of all cold frames of the session, since an error of one frame may name a file of another that it was joined with.
    """

    def __init__(self) -> None:
        self.files = RememberedFiles()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise an error of the block as its translation, if it has one."""
        try:
            yield
        except Exception as error:
            fault = self._fault(error)
            if fault is None:
                raise
            raise fault from error

    def _fault(self, error: Exception) -> ReadFault | None:
        if not type(error).__module__.startswith(FROM_SPARK):
            return None
        message = str(error)
        named = self.files.named_in(message)
        if named is None:
            return None
        thread = LoopThread("boki_spark.cold_frame")
        try:
            return thread.run(fault_of(FsspecFiles(), named, message))
        finally:
            thread.stop()


class TranslatingClient:
    """A gateway client of py4j for the Java objects of cold frames: it forwards everything and translates errors."""

    def __init__(self, inner: Any, errors: SparkErrors) -> None:
        self._inner = inner
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send_command(self, command: str, *args: Any, **how: Any) -> Any:
        """Send a command and return the answer, unless the answer is an error: then raise it, translated.

        Raises:
            ReadFault: the error names a remembered file. All other errors are raised as py4j and pyspark raise them.
        """
        from py4j import java_gateway
        from py4j.protocol import is_error

        answer = self._inner.send_command(command, *args, **how)
        if isinstance(answer, str) and is_error(answer)[0]:
            kind, target, method, *_ = (*command.split("\n", 3), "", "")
            names = (target, method) if kind == _CALL else (None, None)
            with self._errors.translated():
                java_gateway.get_return_value(answer, self._inner, *names)
        return answer


_errors_by_session: WeakKeyDictionary[SparkSession, SparkErrors] = WeakKeyDictionary()


def _errors_of(spark: SparkSession) -> SparkErrors:
    return _errors_by_session.setdefault(spark, SparkErrors())


def with_translated_errors(frame: DataFrame, errors: SparkErrors) -> DataFrame:
    """Return a frame with the same rows, whose Java object has a `TranslatingClient`; with Spark Connect, which has no py4j, the frame."""
    if not hasattr(frame, "_jdf"):
        return frame
    java_frame = frame._jdf.toDF()
    java_frame._gateway_client = TranslatingClient(java_frame._gateway_client, errors)
    return type(frame)(java_frame, frame.sparkSession)
