"""Books in Spark: batches, streams and sinks, and open files of what was written.

    import boki_spark

    boki_spark.register(spark)
    frame.write.format("boki").option("url", "boki://127.0.0.1:7040").option("book", "results").mode("append").save()
    boki_spark.cold(spark, url="boki://127.0.0.1:7040", book="orders").groupBy("log").count().show()

Numbers of books and tags are u64; Spark has signed ones, so its columns hold them as two's complement. `book("orders")` and
`tag("user/1")` give these numbers, to compare columns with.

The rooms, each of which imports only those before it: `errors` (every error and its code), `plan` (options to partitions), `read` (ledgers
to Arrow batches), `cold_terms` (files of offloaded terms), `offload` (writes these files), `sink` (appends frames), `source` (the format
and native frames). `session` starts Spark on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from boki_common.ids import book_id, tag_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["book", "cold", "register", "tag"]

_HALF: Final = 2**63


def register(spark: SparkSession) -> None:
    """Makes the format `boki` known to a session."""
    from boki_spark.source.data_source import BokiDataSource

    spark.dataSource.register(BokiDataSource)


def cold(spark: SparkSession, *, whole: bool = False, **options: object) -> DataFrame:
    """Records of terms that were offloaded, as a frame that Spark reads natively from their Parquet files.

    It has the columns of `format("boki")`, and what that would show of these terms: nothing that was trimmed when the frame was made.
    What is in ledgers only is not in it.

    Args:
        whole: refuse to leave anything out: all records that are asked for must have been offloaded.
        options: those of a batch of `format("boki")` that say what is read, and from where: `url=`, `book=`, `startingSeqnum=`, …

    Raises:
        NotOffloaded: with `whole`. ColdMissing, ColdDamaged: of a file. BadOption, DataLoss, Behind, ClusterAway: as of a batch.
    """
    from boki_spark.source.cold_frame import cold_frame

    return cold_frame(spark, {name: _text(value) for name, value in options.items()}, whole=whole)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def book(name: str | int) -> int:
    """The number of a book, as the column `book` has it. Raises InvalidArgument."""
    return _signed(book_id(name))


def tag(name: str | int) -> int:
    """The number of a tag, as the column `tags` has it. Raises InvalidTag."""
    return _signed(tag_id(name))


def _signed(number: int) -> int:
    return number - 2 * _HALF if number >= _HALF else number
