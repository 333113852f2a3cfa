"""The place of the log at which a transaction reads all of its rows. Pure.

A transaction asks the log which records in the streams of its rows are newer than the stored rows. The answer names the place as of which
it is complete, and the place of the first answer becomes that of the transaction. Later reads are as of this place. If a row is stored at a
newer version, the place moves forward, provided that no row that was read before has changed; otherwise the transaction runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bokiflow.tables.errors import RowsMoved
from bokiflow.tables.schema import RowKey, TableRow, Written, after
from bokilib.records import tags


class Ask(NamedTuple):
    """A question to the log: which records are newer than those that are known?

    Attributes:
        seen: the streams, and up to where each is known.
        at_most: the place as of which the log answers; None asks as of now.
        rows: the rows that the question is about.
    """

    seen: Mapping[str | int, int]
    at_most: int | None
    rows: Sequence[TableRow]


News = Mapping[RowKey, Sequence[tuple[int, Written]]]
"""Records of each row, ascending."""


class Reading:
    """The rows that a transaction has read.

    Attributes:
        place: the place of the transaction; 0 before the first read.
        rows: the rows as of that place.
    """

    def __init__(self) -> None:
        self.place = 0
        self.rows: Final[dict[RowKey, TableRow]] = {}

    def ask(self, stored: Iterable[TableRow], catalogs: Mapping[str, int]) -> Ask:
        """Return the question to ask before these stored rows are read.

        Args:
            stored: the rows as the database has them.
            catalogs: the streams of the definitions of their tables, and up to where each is known.
        """
        new = list(stored)
        at_most = self.place if self.place and all(row.version <= self.place for row in new) else None
        rows = new if at_most is not None else [*self.rows.values(), *new]
        seen: dict[str | int, int] = dict(catalogs.items())
        for row in rows:
            tag = tags.table_row(*row.key)
            seen[tag] = min(row.version, seen.get(tag, row.version))
        return Ask(seen, at_most, rows)

    def answered(self, ask: Ask, place: int, news: News) -> dict[RowKey, TableRow]:
        """Apply the answer to a question.

        Args:
            ask: the question.
            place: the place as of which the answer is complete.
            news: the newer records.

        Returns:
            The rows that were not read before, as of the transaction's place.

        Raises:
            RowsMoved: a row that was read before has changed.
            TableBehind: the stored row lacks changes before the newer records.
        """
        found: dict[RowKey, TableRow] = {}
        for row in ask.rows:
            records = [(seqnum, event) for seqnum, event in news.get(row.key, ()) if seqnum > row.version]
            if row.key not in self.rows:
                found[row.key] = after(row, records)
            elif records:
                raise RowsMoved(f"row {row.key.key!r} of table {row.key.table!r} has changed since it was read")
        if ask.at_most is None:
            self.place = place
        self.rows.update(found)
        return found
