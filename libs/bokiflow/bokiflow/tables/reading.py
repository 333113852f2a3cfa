"""Where a transaction on tables reads: all its rows as of one place of the log, which may move on until something of them changed. Pure.

It asks the log one thing: what is newer, in the streams of these rows, than what is stored of them? The answer names a place as of
which that is all. The first answer's place is the transaction's. Rows that it reads later are read as of that place; if one is stored
newer than that, the place moves on, provided that nothing of what was read before has changed; else it is run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bokiflow.tables.errors import RowsMoved
from bokiflow.tables.rows import Row, RowKey, after
from bokiflow.tables.table_events import Written
from bokilib.records import tags


class Ask(NamedTuple):
    """What to ask the log: streams, and up to where each is known; `at_most`: as of this place, None: as of now."""

    seen: Mapping[str | int, int]
    at_most: int | None
    rows: Sequence[Row]


News = Mapping[RowKey, Sequence[tuple[int, Written]]]
"""Records of rows, ascending."""


class Reading:
    """See the module. `place`: 0 before the first read. `rows`: what was read, as of the place."""

    def __init__(self) -> None:
        self.place = 0
        self.rows: Final[dict[RowKey, Row]] = {}

    def ask(self, stored: Iterable[Row], catalogs: Mapping[str, int]) -> Ask:
        """What to ask for these rows, as they are stored.

        Args:
            catalogs: streams of what the tables are, and up to where each is known.
        """
        new = list(stored)
        at_most = self.place if self.place and all(row.version <= self.place for row in new) else None
        rows = new if at_most is not None else [*self.rows.values(), *new]
        seen: dict[str | int, int] = dict(catalogs.items())
        for row in rows:
            tag = tags.table_row(*row.key)
            seen[tag] = min(row.version, seen.get(tag, row.version))
        return Ask(seen, at_most, rows)

    def answered(self, ask: Ask, place: int, news: News) -> dict[RowKey, Row]:
        """Takes the answer; returns the rows that are new, as of the place. Raises RowsMoved, TableBehind."""
        found: dict[RowKey, Row] = {}
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
