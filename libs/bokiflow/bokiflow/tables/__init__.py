"""Tables of a database, changed exactly once by workflows; see `tables`. The extra `cassandra` brings the driver of Apache Cassandra.

tables = Tables(log, await CassandraTables.connect(["10.0.0.1"], keyspace="shop"))      # bokiflow.tables.cassandra_port
await tables.open(Schema("hotel", {"left": "int"}))
await bokiflow.transact(tables, book, "7")
"""

from bokiflow.tables.errors import (
    ForeignWrite,
    RowsMoved,
    TableBehind,
    TableRefused,
    TableUnavailable,
    WriteUnknown,
)
from bokiflow.tables.memory import MemoryTables
from bokiflow.tables.ports import TablePort
from bokiflow.tables.schema import Kind, Mode, Schema
from bokiflow.tables.tables import Tables
from bokiflow.tables.transactions import Transaction
from bokiflow.tables.upkeep import Settled

__all__ = [
    "ForeignWrite",
    "Kind",
    "MemoryTables",
    "Mode",
    "RowsMoved",
    "Schema",
    "Settled",
    "TableBehind",
    "TablePort",
    "TableRefused",
    "TableUnavailable",
    "Tables",
    "Transaction",
    "WriteUnknown",
]
