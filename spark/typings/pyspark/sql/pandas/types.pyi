from pyarrow import Schema
from pyspark.sql.types import StructType

def to_arrow_schema(schema: StructType, *, timezone: str | None = ...) -> Schema: ...
