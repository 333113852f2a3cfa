"""The format `boki` of Spark. `boki_spark.register(spark)` makes it known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter

from boki_spark.errors import BadOption
from boki_spark.options import sink_options
from boki_spark.sink import JobSink, StreamSink

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BokiDataSource(DataSource):
    """Books as frames."""

    @classmethod
    def name(cls) -> str:
        return "boki"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _check_append(overwrite)
        return JobSink(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        _check_append(overwrite)
        return StreamSink(sink_options(self.options), schema)


def _check_append(overwrite: bool) -> None:
    if overwrite:
        raise BadOption('expected mode("append"): a book is only ever appended to; trim it with the SDK')
