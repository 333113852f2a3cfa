"""What tables need of a database: rows that are read whole, and cells that are written with a time stamp.

`memory.MemoryTables` and `cassandra_port.CassandraTables` are two; one contract suite holds both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from bokiflow.tables.rows import RowKey, Stored
from bokiflow.tables.schema import Schema


class TablePort(Protocol):
    """See the module. What it raises: TableUnavailable, WriteUnknown, TableRefused."""

    async def ensure(self, schema: Schema) -> None:
        """Makes the table, or what it lacks of columns. Raises TableRefused: what is there cannot be kept so."""

    async def claim(self, table: str, token: str) -> str:
        """Notes whose a table is, unless somebody did before; returns whose it is."""

    async def read(self, schema: Schema, key: str) -> Stored:
        """A row as it is stored."""

    async def write(self, schema: Schema, key: RowKey, cells: Mapping[str, Any], timestamp: int) -> None:
        """Writes cells of one row, together. Of two writes to a cell the higher time stamp stays; the same twice is once."""

    def keys(self, schema: Schema) -> AsyncIterator[str]:
        """Keys of all rows that are stored, in no order."""
