"""Books in Spark: batches, streams, sinks, and Parquet files of offloaded terms.

    import boki_spark

    boki_spark.register(spark)
    frame.write.format("boki").option("url", "boki://127.0.0.1:7040").option("book", "results").mode("append").save()
    boki_spark.cold(spark, url="boki://127.0.0.1:7040", book="orders").groupBy("log").count().show()

Ids of books and tags are u64. Spark's integers are signed, so its columns hold them as two's complement. `book("orders")` and
`tag("user/1")` return these numbers, for comparisons with columns.

The rooms, each of which imports only those before it: `errors` (every error and its code), `plan` (options to partitions), `read` (ledgers
to Arrow batches), `cold_terms` (files of offloaded terms), `offload` (writes these files), `sink` (appends frames), `source` (the format
and native frames). `session` starts Spark on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boki_common.ids import book_id, tag_id
from boki_spark.plan.options import signed_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["book", "cold", "register", "tag"]


def register(spark: SparkSession) -> None:
    """Register the format `boki` with a session."""
    from boki_spark.source.data_source import BokiDataSource

    spark.dataSource.register(BokiDataSource)


def cold(spark: SparkSession, *, whole: bool = False, **options: object) -> DataFrame:
    """Return the records of offloaded terms as a frame that Spark reads natively from their Parquet files.

    The frame has the columns of `format("boki")` and the rows that this format would show for these terms: records that were trimmed before
    the frame was made are left out. Records that are in ledgers only are not part of it.

    Args:
        whole: raise an error instead of leaving out records that are in ledgers only.
        options: options of a batch of `format("boki")` that choose records and the cluster: `url=`, `book=`, `startingSeqnum=`, …

    Raises:
        NotOffloaded: with `whole`, some of the records are in ledgers only.
        ColdMissing, ColdDamaged: a file is missing or is not what its manifest says.
        BadOption, DataLoss, Behind, ClusterAway: as for a batch of `format("boki")`.
    """
    from boki_spark.source.cold_frame import cold_frame

    return cold_frame(spark, {name: _text(value) for name, value in options.items()}, whole=whole)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def book(name: str | int) -> int:
    """Return the id of a book as the column `book` holds it.

    Raises:
        InvalidArgument: the name is empty or too long.
    """
    return signed_id(book_id(name))


def tag(name: str | int) -> int:
    """Return the id of a tag as the column `tags` holds it.

    Raises:
        InvalidTag: the name is empty or too long.
    """
    return signed_id(tag_id(name))
