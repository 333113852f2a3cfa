"""What tables need of a database: rows that are read whole, and cells that are written with a time stamp.

`memory.MemoryTables` and `cassandra_port.CassandraTables` are two; one contract suite holds both. What `ensure` makes, and what is read
and written, is by the mode of the schema (`schema`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from bokiflow.tables.rows import RowKey, Stored
from bokiflow.tables.schema import Schema
from bokiflow.tables.swap_rules import Standing, Swap


class TablePort(Protocol):
    """See the module. What it raises: TableUnavailable, WriteUnknown, TableRefused."""

    async def ensure(self, schema: Schema) -> None:
        """Makes the table, or what it lacks of columns. Raises TableRefused: what is there cannot be kept so."""

    async def claim(self, table: str, token: str) -> str:
        """Notes whose a table is, unless somebody did before; returns whose it is."""

    async def read(self, schema: Schema, key: str) -> Stored:
        """A row as it is stored; of a versioned table its newest version."""

    async def write(self, schema: Schema, key: RowKey, cells: Mapping[str, Any], timestamp: int) -> None:
        """Writes cells of one row, together. Of two writes to a cell the higher time stamp stays; the same twice is once.

        Of a versioned table it is the version `timestamp`, whole.
        """

    def keys(self, schema: Schema) -> AsyncIterator[str]:
        """Keys of all rows that are stored, in no order."""

    # -- mode `versioned`

    async def read_at(self, schema: Schema, key: str, at_most: int) -> Stored:
        """The newest version of a row that is stored, up to this one."""

    async def drop_below(self, schema: Schema, key: str, version: int) -> None:
        """Deletes versions of a row that are older than this one."""

    # -- mode `lwt`

    async def standing(self, schema: Schema, key: str) -> Standing:
        """A row as all agree that it is: what may be under way is finished first, or will never be."""

    async def swap(self, schema: Schema, key: str, seen: str | None, swap: Swap) -> bool:
        """Changes a row, if its newest operation still is `seen`; whether it was. Raises WriteUnknown: perhaps it did, or will."""

    async def help(self, op: str, outcome: str) -> None:
        """Notes that an operation was applied, and how it ended, before the row that has it is overwritten. Twice is once."""

    async def helped(self, op: str) -> str | None:
        """How an operation ended of which that was noted; None: it was not."""

    def helps(self) -> AsyncIterator[str]:
        """All operations of which something is noted, in no order."""

    async def unhelp(self, op: str) -> None:
        """Nobody asks for it any more."""
