"""Tables of a database, changed exactly once by workflows. The extra `cassandra` brings the driver of Apache Cassandra.

    tables = Tables(log, await CassandraTables.connect(["10.0.0.1"], keyspace="shop"))      # bokiflow.tables.cassandra_port
    await tables.open(Schema("hotel", {"left": "int"}))
    await bokiflow.transact(tables, book, "7")

Read in this order: `schema` (columns and modes), `rows` (from records to what is stored), `ports` (what a database has to do),
`transactions` and `tables` (mode `log`), `versions` (mode `versioned`), `swap_rules` and `swapping` (mode `lwt`), `locking` (locks over
several steps), `upkeep` (retention).
"""

from bokiflow.tables.errors import (
    ForeignWrite,
    NotHeld,
    RowsMoved,
    TableBehind,
    TableRefused,
    TableUnavailable,
    VersionsGone,
    WriteUnknown,
    WrittenUnlocked,
)
from bokiflow.tables.locking import LockingTransaction, locked, staged
from bokiflow.tables.memory import MemoryTables
from bokiflow.tables.ports import TablePort
from bokiflow.tables.schema import Kind, Mode, Schema
from bokiflow.tables.swap_rules import OneRow
from bokiflow.tables.tables import Tables
from bokiflow.tables.transactions import Transaction
from bokiflow.tables.upkeep import Settled, TablesCarried

__all__ = [
    "ForeignWrite",
    "Kind",
    "LockingTransaction",
    "MemoryTables",
    "Mode",
    "NotHeld",
    "OneRow",
    "RowsMoved",
    "Schema",
    "Settled",
    "TableBehind",
    "TablePort",
    "TableRefused",
    "TableUnavailable",
    "TablesCarried",
    "Tables",
    "Transaction",
    "VersionsGone",
    "WriteUnknown",
    "WrittenUnlocked",
    "locked",
    "staged",
]
