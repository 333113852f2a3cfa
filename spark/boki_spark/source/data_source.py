"""The data source `boki` of Spark. `boki_spark.register(spark)` registers it with a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from boki_spark.errors import BadOption, BadSchema
from boki_spark.plan.options import sink_options
from boki_spark.plan.read_options import (
    METALOG,
    RECORDS,
    SCHEMA,
    SEGMENTS,
    batch_options,
    chosen_columns,
    stream_options,
)
from boki_spark.sink.sink import JobSink, StreamSink, columns_of
from boki_spark.source.datasets import METALOG_SCHEMA, SEGMENTS_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FACTS = {SEGMENTS: SEGMENTS_SCHEMA, METALOG: METALOG_SCHEMA}


class BokiDataSource(DataSource):
    """Books as frames."""

    @classmethod
    def name(cls) -> str:
        return "boki"

    def schema(self) -> str:
        return FACTS.get(self.options.get("dataset", RECORDS), SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        from boki_spark.source.reader import FactsReader, RecordsReader

        options = batch_options(self.options)
        if options.dataset != RECORDS:
            if schema.simpleString() != _struct(FACTS[options.dataset]):
                raise BadSchema(
                    f"expected no schema beside dataset={options.dataset}, whose columns are {FACTS[options.dataset]}"
                )
            return FactsReader(options, schema)
        chosen_columns(columns_of(schema))
        return RecordsReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from boki_spark.source.reader import RecordsStream

        chosen_columns(columns_of(schema))
        return RecordsStream(stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _check_append(overwrite)
        return JobSink(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        _check_append(overwrite)
        return StreamSink(sink_options(self.options), schema)


def _struct(columns: str) -> str:
    """Return a schema as Spark writes a struct."""
    return f"struct<{','.join(':'.join(column.split(' ', 1)) for column in columns.split(', '))}>"


def _check_append(overwrite: bool) -> None:
    if overwrite:
        raise BadOption('expected mode("append"): a book is only ever appended to; trim it with the SDK')
