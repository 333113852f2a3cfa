"""What tables write to the log. Pure.

| stream | who joins it |
|---|---|
| `table/row/<table>/<key>` | Written: each change of a row; what it becomes follows from what was before, which the record expects |
| `table/rows/<table>` | Written of all rows: who brings a table up to date reads it |
| `table/cat/<table>` | Made: what a table is; who writes a row expects that nobody changed it |
| `table/floor/<table>` | Collected: which versions of rows are gone |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from bokiflow.tables.schema import Kind, Mode
from bokilib.records.events import Event, Picker


class Made(Event, tag="table.made", frozen=True):
    """A table is this, from here on.

    Attributes:
        id: its name. token: of whose it is: the same in all of its records, and in the database.
    """

    id: str
    mode: Mode
    columns: Mapping[str, Kind]
    token: str


class Collected(Event, tag="table.floor", frozen=True):
    """Of each row, versions that only somebody needs who looks at it as of before `floor` may be gone."""

    id: str
    floor: int


class Written(Event, tag="table.row", frozen=True):
    """A row changes.

    Attributes:
        id: the table. before: seqnum of the row's change before; 0: none. cells: what it has anew; of a versioned table all that it has.
        absent: columns that hold nothing afterwards, whatever is stored in them. gone: there is no row afterwards.
    """

    id: str
    key: str
    before: int
    cells: Mapping[str, Any]
    absent: list[str]
    gone: bool = False


AnyTableEvent: TypeAlias = Made | Written | Collected

PICKER: Final[Picker[AnyTableEvent]] = Picker("table", (Made, Written, Collected))
