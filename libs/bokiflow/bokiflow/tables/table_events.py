"""Events of tables in the log. Pure.

| stream | events |
|---|---|
| `table/row/<table>/<key>` | Written: each change of a row; its append expects that the row did not change since it was read |
| `table/rows/<table>` | Written, of all rows of a table: read to bring the table up to date |
| `table/cat/<table>` | Made: the definition of a table; each change of a row expects that it did not change |
| `table/floor/<table>` | Collected: the place below which versions of rows may be deleted |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from bokiflow.tables.schema import Kind, Mode
from bokilib.records.events import Event, Picker


class Made(Event, tag="table.made", frozen=True):
    """A table was created or got new columns.

    Attributes:
        id: the name of the table.
        mode: its mode.
        columns: the kind of each column, by name.
        token: the token of its owner: the same in all of its records, and in the database.
    """

    id: str
    mode: Mode
    columns: Mapping[str, Kind]
    token: str


class Collected(Event, tag="table.floor", frozen=True):
    """Versions of rows that only reads as of places below `floor` need may be deleted."""

    id: str
    floor: int


class Written(Event, tag="table.row", frozen=True):
    """A row changed.

    Attributes:
        id: the table.
        key: the key of the row.
        before: the seqnum of the row's change before; 0 for the first one.
        cells: the cells that changed; for a versioned table, all cells of the row.
        absent: the columns that are empty afterwards, also if the database has cells in them.
        gone: the row was deleted.
    """

    id: str
    key: str
    before: int
    cells: Mapping[str, Any]
    absent: list[str]
    gone: bool = False


AnyTableEvent: TypeAlias = Made | Written | Collected

PICKER: Final[Picker[AnyTableEvent]] = Picker("table", (Made, Written, Collected))
