"""The port of databases: rows are read as a whole, and cells are written with a time stamp.

`memory.MemoryTables` and `cassandra_port.CassandraTables` implement it; one contract suite tests both. The mode of the schema (`schema`)
decides which table `ensure` creates, and how it is read and written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from bokiflow.tables.schema import RowKey, Schema, Stored
from bokiflow.tables.swap_rules import Standing, Swap


class TablePort(Protocol):
    """A database with tables.

    Raises:
        TableUnavailable: the database does not answer, and a call had no effect.
        WriteUnknown: a write may or may not be done.
        TableRefused: the table does not fit its schema.
    """

    async def ensure(self, schema: Schema) -> None:
        """Create the table, or add the columns that it lacks.

        Raises:
            TableRefused: the existing table does not fit the schema.
        """

    async def claim(self, table: str, token: str) -> str:
        """Record the owner of a table, unless it has one; return its owner."""

    async def read(self, schema: Schema, key: str) -> Stored:
        """Return a row as it is stored; for a versioned table, the newest version of the row."""

    async def write(self, schema: Schema, key: RowKey, cells: Mapping[str, Any], timestamp: int) -> None:
        """Write cells of one row atomically. A cell keeps the write with the highest time stamp; a repeated write changes nothing.

        For a versioned table the cells are the whole version `timestamp` of the row.
        """

    def keys(self, schema: Schema) -> AsyncIterator[str]:
        """Yield the keys of all stored rows, in no order."""

    # -- mode `versioned`

    async def read_at(self, schema: Schema, key: str, at_most: int) -> Stored:
        """Return the newest stored version of a row that is not above `at_most`."""

    async def drop_below(self, schema: Schema, key: str, version: int) -> None:
        """Delete the versions of a row that are older than `version`."""

    # -- mode `lwt`

    async def standing(self, schema: Schema, key: str) -> Standing:
        """Return a row after every pending swap of it is done, or will never be."""

    async def swap(self, schema: Schema, key: str, seen: str | None, swap: Swap) -> bool:
        """Change a row if its newest operation still is `seen`; return whether it was changed.

        Raises:
            WriteUnknown: the row was changed, was not, or will be.
        """

    async def help(self, op: str, outcome: str) -> None:
        """Record the outcome of an applied operation before its row is overwritten. A repeated call changes nothing."""

    async def helped(self, op: str) -> str | None:
        """Return the recorded outcome of an operation; None if none is recorded."""

    def helps(self) -> AsyncIterator[str]:
        """Yield the operations with a recorded outcome, in no order."""

    async def unhelp(self, op: str) -> None:
        """Delete the recorded outcome of an operation."""
