"""Transactions on rows of tables: all reads are as of one place of the log, and all writes are one record, with contributions of others.

    async def book(tx: Transaction, hotel: str) -> int:
        row = await tx.get("hotel", hotel)
        ...
        tx.put("hotel", hotel, {"left": left - 1})

The record has the cells that change, and its append expects that no row that was read has changed: it decides. The database is written
afterwards, with the record's seqnum as time stamp (`applier`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import boki
from boki_common.errors import InvalidArgument, Trimmed
from bokiflow.tables.errors import RowsMoved, TableBehind
from bokiflow.tables.reading import Ask, Reading
from bokiflow.tables.schema import (
    PICKER,
    Change,
    Made,
    RowKey,
    Schema,
    TableRow,
    Written,
    changed,
    check_cells,
    check_key,
    check_mode,
    put,
    written,
)
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.codec import Json, JsonObject
from bokilib.records.contribution import Contribution

ROWS: Final = 120
"""Rows of one transaction, at most: a record has up to 255 streams and 256 expectations."""


class Opened(NamedTuple):
    """An open table: its definition, the seqnum of that record, and the token of its owner."""

    schema: Schema
    seqnum: int
    token: str = ""


class Database(Protocol):
    """The methods of `Tables` that transactions use."""

    @property
    def log(self) -> Log: ...

    def opened(self, table: str) -> Opened:
        """Return a table as this process knows it.

        Raises:
            InvalidArgument: the table is not open.
        """

    async def stored(
        self, keys: Sequence[RowKey], opened: Mapping[str, Opened], *, fresh: bool = False
    ) -> list[TableRow]:
        """Return rows as they are stored or cached, with all columns of these definitions; with `fresh`, as they are stored."""

    def saw(self, row: TableRow, records: Sequence[tuple[int, Written]], opened: Opened) -> None:
        """Take note of a row as of a place, and of its records that the database may lack."""

    async def made(self, made: Made, seqnum: int) -> Opened:
        """Use a newer record with the definition of a table, which may be the same as before."""

    async def learn(self, table: str) -> Opened:
        """Read the newest definition of a table from the log."""


class TransactionOver(InvalidArgument):
    """A transaction was used after it ended."""


class Transaction:
    """A transaction on rows of open tables.

    The definition of a table is that of the transaction's first access, and its record expects that the definition did not change: for a
    column that the transaction does not know, it could not say whether the column is empty.

    Attributes:
        seqnum: the seqnum of its record; 0 before.
        extra: contributions of other libraries to its record.
    """

    def __init__(self, database: Database) -> None:
        self.seqnum = 0
        self.extra: Final[list[Contribution]] = []
        self._database: Final = database
        self._reading: Final = Reading()
        self._changes: Final[dict[RowKey, Change]] = {}
        self._opened: Final[dict[str, Opened]] = {}
        self._ended = False

    @property
    def log(self) -> Log:
        """The log of its tables."""
        return self._database.log

    # -- reading

    async def get(self, table: str, key: str) -> JsonObject | None:
        """Read a row, with the writes of this transaction.

        Returns:
            The row; None if it does not exist.

        Raises:
            RowsMoved: a row that was read before has changed: run the transaction again.
            TableUnavailable: the database does not answer.
            ForeignWrite: another program wrote the row without the log.
            TableBehind: the database lacks changes that the log has trimmed.
        """
        (found,) = await self.get_many(table, [key])
        return found

    async def get_many(self, table: str, keys: Sequence[str]) -> list[JsonObject | None]:
        """Read rows of one table as `get` does, with one round trip to the log."""
        self._check_open()
        wanted = [RowKey(self._schema(table).name, check_key(key)) for key in keys]
        await self._read(wanted)
        return [changed(self._reading.rows[key], self._changes.get(key)).value() for key in wanted]

    def version(self, table: str, key: str) -> int:
        """Return the seqnum of the newest change of a row that was read; 0 if it never had one."""
        return self._reading.rows[RowKey(table, key)].version

    def _schema(self, table: str) -> Schema:
        if table not in self._opened:
            opened = self._database.opened(table)
            check_mode(
                opened.schema, ("log", "versioned"), "transactions: each of its rows changes by itself, by `change`"
            )
            self._opened[table] = opened
        return self._opened[table].schema

    async def _read(self, wanted: Sequence[RowKey]) -> None:
        missing = [key for key in dict.fromkeys(wanted) if key not in self._reading.rows]
        if len(self._reading.rows) + len(missing) > ROWS:
            raise InvalidArgument(
                f"expected a transaction of at most {ROWS} rows, found more: do less at once",
                expected=ROWS,
                found=len(self._reading.rows) + len(missing),
            )
        if missing:
            stored = await self._database.stored(missing, self._opened)
            try:
                await self._as_of_place(stored)
            except Trimmed:  # a cached row is so old that the log has trimmed the changes after it
                await self._as_of_place(await self._database.stored(missing, self._opened, fresh=True), again=True)

    async def _as_of_place(self, stored: Sequence[TableRow], *, again: bool = False) -> None:
        while True:
            catalogs = {tags.table_catalog(table): opened.seqnum for table, opened in self._opened.items()}
            ask = self._reading.ask(stored, catalogs)
            try:
                since = await self._database.log.book.read_since(ask.seen, at_most=ask.at_most)
                break
            except Trimmed as error:
                if not await self._learned(error):
                    self._check_behind(error, stored, again)
                    raise
        news = await self._news(ask, since.records)
        for key, row in self._reading.answered(ask, since.position, news).items():
            self._database.saw(row, news.get(key, ()), self._opened[key.table])

    async def _learned(self, error: Trimmed) -> bool:
        """Learn the new place of a table's definition if the definition was only rewritten; return whether it was."""
        for table, opened in self._opened.items():
            if tags.table_catalog(table) == error.facts.get("tag"):
                learned = await self._database.learn(table)
                self._is_now(table, learned)
                return learned.seqnum > opened.seqnum
        return False

    def _check_behind(self, error: Trimmed, stored: Sequence[TableRow], again: bool) -> None:
        """Find out why the log has trimmed the changes after a row.

        Raises:
            RowsMoved: a row that was read before has changed since.
            TableBehind: the row was just read from the database, which lacks these changes.
        """
        if any(tags.table_row(*key) == error.facts.get("tag") for key in self._reading.rows):
            raise RowsMoved("a row that was read before has changed, and the log has trimmed the change") from error
        if not again:
            return
        behind = [row for row in stored if tags.table_row(*row.key) == error.facts.get("tag")] or list(stored)
        raise TableBehind(
            f"row {behind[0].key.key!r} of table {behind[0].key.table!r} is stored at version {behind[0].version}, and the log has "
            "trimmed the changes after it: was the table restored from a backup?",
            table=behind[0].key.table,
            key=behind[0].key.key,
        ) from error

    async def _news(self, ask: Ask, records: Sequence[boki.Record]) -> dict[RowKey, list[tuple[int, Written]]]:
        asked = {row.key for row in ask.rows}
        news: dict[RowKey, list[tuple[int, Written]]] = {}
        for record in records:
            for event in PICKER.of(record.seqnum, await self._database.log.open(record)):
                if isinstance(event, Made):
                    self._is_now(event.id, await self._database.made(event, record.seqnum))
                if isinstance(event, Written) and (key := RowKey(event.id, event.key)) in asked:
                    news.setdefault(key, []).append((record.seqnum, event))
        return news

    def _is_now(self, table: str, opened: Opened) -> None:
        """Use the place of a newer record with the definition of a table, which this transaction's record expects.

        Raises:
            RowsMoved: the definition has changed.
        """
        if opened.schema != self._opened[table].schema:
            raise RowsMoved(f"table {table!r} has other columns now")
        self._opened[table] = opened

    # -- writing

    def put(self, table: str, key: str, cells: Mapping[str, Json]) -> None:
        """Write cells of a row, which is created if it does not exist; None empties a cell.

        Raises:
            InvalidArgument: the table is not open, or a cell does not fit its column.
            NotEncodable: a value is not JSON.
        """
        self._check_open()
        check_cells(self._schema(table), cells)
        self._change(RowKey(table, check_key(key)), cells)

    def delete(self, table: str, key: str) -> None:
        """Delete a row, if it exists."""
        self._check_open()
        self._changes[RowKey(self._schema(table).name, check_key(key))] = Change(True, None)

    def _change(self, key: RowKey, cells: Mapping[str, Json]) -> None:
        self._changes[key] = put(self._changes.get(key), cells)

    def add(self, part: Contribution) -> None:
        """Add the contribution of another library to the record.

        Raises:
            InvalidArgument: it is no contribution.
            WrongBook: it is for another book than the tables.
        """
        self._check_open()
        self.log.check_part(part)
        self.extra.append(part)

    def _check_open(self) -> None:
        if self._ended:
            raise TransactionOver("this transaction has ended: begin a new one")

    # -- for the caller that commits

    async def read_and_changed(self) -> list[tuple[RowKey, int, Change | None]]:
        """Return each row that was read or changed, with its version and its change."""
        await self._read(list(self._changes))
        return [(key, row.version, self._changes.get(key)) for key, row in self._reading.rows.items()]

    def end(self) -> None:
        """End the transaction: a later read or write raises TransactionOver."""
        self._ended = True

    async def contribution(self) -> Contribution:
        """Return the events, streams and expectations for the record. Rows that were written without being read are read first."""
        await self._read(list(self._changes))
        rows, events = self._reading.rows, []
        streams: list[str] = []
        for key, change in self._changes.items():
            row = rows[key]
            if change.cells is None and row.cells is None:
                continue
            events.append(written(row, change, self._schema(key.table)))
            streams += [tags.table_row(*key), tags.table_rows(key.table)]
        if not events:
            return Contribution()
        expect: dict[str, int | None] = {tags.table_row(*key): self._reading.place for key in rows}
        for event in events:
            expect[tags.table_catalog(event.id)] = self._opened[event.id].seqnum
        return Contribution(tuple(dict.fromkeys(streams)), expect, tuple(events))

    def committed(self, seqnum: int, part: Contribution) -> None:
        """Take note that the record is in the log, and have the database written."""
        self.seqnum = seqnum
        for event in part.events:
            assert isinstance(event, Written), "a transaction writes rows"
            key = RowKey(event.id, event.key)
            row = changed(self._reading.rows[key], self._changes[key])._replace(version=seqnum)
            self._database.saw(row, [(seqnum, event)], self._opened[key.table])
