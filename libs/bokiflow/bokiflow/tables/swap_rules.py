"""Rows of tables that others write too (mode `lwt`): what is known of an operation from what is stored. Pure.

Every change of a row is a light-weight transaction of the database, and an operation with a name that is used once: it writes its name
and how it ended (`boki_op`, `boki_out`) with the cells, if the name that is there is the one that it saw.

- So an operation is applied once: a name that was overwritten never comes back, and what expects it fails for ever.
- Who overwrites an operation's name first notes how it ended (`boki_helped`), for whoever runs it and does not know yet.
- So who reads the row, and then what was noted, knows: its name is there, or noted: it was applied. Neither: it was not, and if what may
  be under way of it still comes, it is applied then, or fails: to try again under the same name is right in both cases.
- An operation that writes nothing, or fails, is applied like any other: else a late attempt of it could write after all.

Whoever writes the table without this library does the same: two statements more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from bokiflow.tables.schema import Schema, check_cells
from bokilib.records.codec import Json, JsonObject

OP: Final = "boki_op"
OUTCOME: Final = "boki_out"
_BETWEEN: Final = "|"
OUTSIDE_MS: Final = 86_400_000
"""Notes on operations of who runs no workflow are kept so long: such an operation is given up long before (`swapping`)."""


class Standing(NamedTuple):
    """A row as it is stored. `op`: its newest operation; None: nobody's yet. `outcome`: how that ended. `cells`: None: there is no row."""

    op: str | None
    outcome: str
    cells: JsonObject | None


NOTHING: Final = Standing(None, "", None)


class Swap(NamedTuple):
    """What an operation makes of a row. `cells`: all that it has afterwards; None: as before. `gone`: there is no row afterwards."""

    op: str
    outcome: str
    cells: Mapping[str, Json] | None = None
    gone: bool = False


def ended(op: str, standing: Standing, helped: str | None) -> str | None:
    """How an operation ended, from the row and from what was noted of it when that was read after the row; None: it was not applied."""
    return standing.outcome if standing.op == op else helped


class Name(NamedTuple):
    """An operation's name. `token`: of the book. `workflow`: "": it is of none. `began_ms`: see `later_ms`."""

    token: str
    workflow: str
    began_ms: int
    unique: str

    @property
    def text(self) -> str:
        """As it is stored."""
        return _BETWEEN.join((self.token, str(self.began_ms), self.unique, self.workflow))


def name_of(text: str) -> Name | None:
    """A name as it is stored; None: it is none of this library."""
    token, *rest = text.split(_BETWEEN, 3)
    if len(rest) != 3 or not rest[0].isdigit():
        return None
    return Name(token, rest[2], int(rest[0]), rest[1])


def later_ms(wall_ms: int, log_ms: int) -> int:
    """When an operation begins: by whichever clock is ahead, so that whoever forgets it does so rather late.

    The log's time stands still while nobody writes, and a wall clock may be wrong: either could be days behind.
    """
    return max(wall_ms, log_ms)


def earlier_ms(wall_ms: int, log_ms: int) -> int:
    """What time it is for who forgets operations: by whichever clock is behind."""
    return min(wall_ms, log_ms)


def is_over(name: Name, now_ms: int) -> bool:
    """Whether nobody asks any more how an operation of no workflow ended. `now_ms`: see `earlier_ms`."""
    return not name.workflow and name.began_ms + OUTSIDE_MS < now_ms


class OneRow:
    """A row within one operation."""

    def __init__(self, schema: Schema, standing: Standing) -> None:
        self._schema: Final = schema
        self._cells = None if standing.cells is None else dict(standing.cells)
        self._changed = False

    @property
    def value(self) -> JsonObject | None:
        """What the row is, with what was put; None: there is none."""
        return None if self._cells is None else dict(self._cells)

    def put(self, cells: Mapping[str, Json]) -> None:
        """Writes cells; None: nothing is in it any more. Raises InvalidArgument, NotEncodable."""
        check_cells(self._schema, cells)
        both = {**(self._cells or {}), **cells}
        self._cells = {name: value for name, value in both.items() if value is not None}
        self._changed = True

    def delete(self) -> None:
        """Ends the row, if there is one."""
        self._cells, self._changed = None, True

    def swap(self, op: str, outcome: str) -> Swap:
        """What becomes of it."""
        if not self._changed:
            return Swap(op, outcome)
        return Swap(op, outcome, self._cells or {}, gone=self._cells is None)
