"""Operations on rows of mode `lwt`, which other programs write too: whether an operation was applied, from what is stored. Pure.

Every change of a row is an operation, whose name is used once, and a light-weight transaction of the database: it writes the operation's
name and outcome (`boki_op`, `boki_out`) with the cells, on condition that the row still has the operation that was read.

- So an operation is applied at most once: an overwritten name never returns, and a transaction that expects it always fails.
- A writer that overwrites an operation first records its outcome in `boki_helped`, for the process that runs it and may not know yet.
- So reading the row, and then `boki_helped`, decides: if either has the operation's name, it was applied. If neither has it, it was not
  applied; a pending statement of it may still be applied, or fail. In both cases trying again under the same name is right.
- An operation that writes no cells, or fails, is applied like any other: otherwise a late attempt of it could write after all.

A program that writes the table without this library follows the same rules, which takes two more statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from bokiflow.tables.schema import Schema, check_cells
from bokilib.records.codec import Json, JsonObject, copy_json

OP: Final = "boki_op"
OUTCOME: Final = "boki_out"
_BETWEEN: Final = "|"
OUTSIDE_MS: Final = 86_400_000
"""Retention of recorded outcomes of operations outside of workflows, which are given up long before (`swapping.OUTSIDE_S`)."""


class Standing(NamedTuple):
    """A row of mode `lwt` as it is stored.

    Attributes:
        op: the name of its newest operation; None if it never had one.
        outcome: the outcome of that operation.
        cells: its values by column; None if the row does not exist.
    """

    op: str | None
    outcome: str
    cells: JsonObject | None


NOTHING: Final = Standing(None, "", None)


class Swap(NamedTuple):
    """The change that an operation makes to a row.

    Attributes:
        op: the name of the operation.
        outcome: the outcome of the operation.
        cells: all cells that the row has afterwards; None leaves them as they are.
        gone: the operation deletes the row.
    """

    op: str
    outcome: str
    cells: Mapping[str, Json] | None = None
    gone: bool = False


def ended(op: str, standing: Standing, helped: str | None) -> str | None:
    """Return the outcome of an operation; None if it was not applied.

    Args:
        op: the name of the operation.
        standing: its row.
        helped: the operation's recorded outcome, read after the row; None if none is recorded.
    """
    return standing.outcome if standing.op == op else helped


class Name(NamedTuple):
    """The name of an operation.

    Attributes:
        token: the token of the book.
        workflow: the workflow that runs the operation; "" outside of workflows.
        began_ms: outside of workflows, when it began, by `later_ms`; else when its workflow did (of older programs: when it was called).
        unique: a value that no other operation has.
    """

    token: str
    workflow: str
    began_ms: int
    unique: str

    @property
    def text(self) -> str:
        """The name as it is stored."""
        return _BETWEEN.join((self.token, str(self.began_ms), self.unique, self.workflow))


def name_of(text: str) -> Name | None:
    """Parse a stored name; return None for a name that another program wrote."""
    token, *rest = text.split(_BETWEEN, 3)
    if len(rest) != 3 or not rest[0].isdigit():
        return None
    return Name(token, rest[2], int(rest[0]), rest[1])


def later_ms(wall_ms: int, log_ms: int) -> int:
    """Return the time at which an operation begins: that of the clock that is ahead, so that its outcome is deleted rather late.

    Either clock may be days behind: the log's time stands still while there are no appends, and a wall clock may be wrong.
    """
    return max(wall_ms, log_ms)


def earlier_ms(wall_ms: int, log_ms: int) -> int:
    """Return the time by which outcomes expire: that of the clock that is behind."""
    return min(wall_ms, log_ms)


def is_over(name: Name, now_ms: int) -> bool:
    """Return whether the outcome of an operation outside of workflows has expired. `now_ms` is by `earlier_ms`."""
    return not name.workflow and name.began_ms + OUTSIDE_MS < now_ms


class OneRow:
    """The row that the body of an operation reads and changes."""

    def __init__(self, schema: Schema, standing: Standing) -> None:
        self._schema: Final = schema
        self._cells: JsonObject | None = None if standing.cells is None else copy_json(dict(standing.cells))
        self._changed = False

    @property
    def value(self) -> JsonObject | None:
        """A copy of the row with the changes so far; None if it does not exist."""
        return copy_json(self._cells)

    def put(self, cells: Mapping[str, Json]) -> None:
        """Write cells; None empties a cell.

        Raises:
            InvalidArgument: a cell does not fit its column.
            NotEncodable: a value is not JSON.
        """
        check_cells(self._schema, cells)
        both = {**(self._cells or {}), **copy_json(dict(cells))}
        self._cells = {name: value for name, value in both.items() if value is not None}
        self._changed = True

    def delete(self) -> None:
        """Delete the row."""
        self._cells, self._changed = None, True

    def swap(self, op: str, outcome: str) -> Swap:
        """Return the change that the operation makes to the row."""
        if not self._changed:
            return Swap(op, outcome)
        return Swap(op, outcome, self._cells or {}, gone=self._cells is None)
