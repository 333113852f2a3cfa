"""A transaction on rows of tables: what it reads is as of one place, what it writes is one record, with what others add to it.

    async def book(tx: Transaction, hotel: str) -> int:
        row = await tx.get("hotel", hotel)
        ...
        tx.put("hotel", hotel, {"left": left - 1})

The record has the cells that change, and expects that nothing of what was read has moved: it decides. The database is written afterwards,
with the record's seqnum as time stamp (`applier`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import boki
from boki_common.errors import InvalidArgument, Trimmed
from bokiflow.tables.errors import RowsMoved, TableBehind
from bokiflow.tables.reading import Ask, Reading
from bokiflow.tables.rows import Change, Row, RowKey, changed, put, written
from bokiflow.tables.schema import Schema, check_cells, check_key, check_mode
from bokiflow.tables.table_events import PICKER, Made, Written
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.codec import Json, JsonObject
from bokilib.records.contribution import Contribution

ROWS: Final = 120
"""Of one transaction: a record takes 255 streams and 256 expectations."""


class Opened(NamedTuple):
    """A table that is open: what it is, in which record, and whose it is."""

    schema: Schema
    seqnum: int
    token: str = ""


class Database(Protocol):
    """What transactions need of `Tables`."""

    @property
    def log(self) -> Log: ...

    def opened(self, table: str) -> Opened:
        """What a table is, as far as this process knows. Raises InvalidArgument: it is not open."""

    async def stored(self, keys: Sequence[RowKey], opened: Mapping[str, Opened], *, anew: bool = False) -> list[Row]:
        """Rows as they are stored, or as they were read before, with all columns of what their tables are."""

    def saw(self, row: Row, records: Sequence[tuple[int, Written]], opened: Opened) -> None:
        """A row as of a place, and what of it the database may lack."""

    async def made(self, made: Made, seqnum: int) -> Opened:
        """There is a newer record of what a table is; perhaps the same."""

    async def learn(self, table: str) -> Opened:
        """What a table is by the log, as of now."""


class TransactionOver(InvalidArgument):
    """A transaction was used after it ended."""


class Transaction:
    """See the module. `seqnum`: where it is in the log, 0 before.

    What its tables are is what they were when it first touched them, which its record expects: of a column that it does not know it
    could not say whether there is something in it.
    """

    def __init__(self, database: Database) -> None:
        self.seqnum = 0
        self.extra: Final[list[Contribution]] = []
        self._database: Final = database
        self._reading: Final = Reading()
        self._changes: Final[dict[RowKey, Change]] = {}
        self._opened: Final[dict[str, Opened]] = {}
        self._ended = False

    # -- reading

    async def get(self, table: str, key: str) -> JsonObject | None:
        """A row, own writes included; None: there is none. Raises RowsMoved: run it again; TableUnavailable, ForeignWrite."""
        (found,) = await self.get_many(table, [key])
        return found

    async def get_many(self, table: str, keys: Sequence[str]) -> list[JsonObject | None]:
        """Rows of one table, in one round trip to the log."""
        self._check_open()
        wanted = [RowKey(self._schema(table).name, check_key(key)) for key in keys]
        await self._read(wanted)
        return [changed(self._reading.rows[key], self._changes.get(key)).value() for key in wanted]

    def version(self, table: str, key: str) -> int:
        """Seqnum of the newest change of a row that was read; 0: there never was one."""
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
            except Trimmed:  # what is known here of a row is older than what the log has kept of it
                await self._as_of_place(await self._database.stored(missing, self._opened, anew=True), again=True)

    async def _as_of_place(self, stored: Sequence[Row], *, again: bool = False) -> None:
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
        """Whether it was only a table's catalog that was carried out of an old term since it was opened, and is known now."""
        for table, opened in self._opened.items():
            if tags.table_catalog(table) == error.facts.get("tag"):
                learned = await self._database.learn(table)
                self._is_now(table, learned)
                return learned.seqnum > opened.seqnum
        return False

    def _check_behind(self, error: Trimmed, stored: Sequence[Row], again: bool) -> None:
        """Raises RowsMoved; and TableBehind: what is stored was read again, and lacks what the log has given up."""
        if any(tags.table_row(*key) == error.facts.get("tag") for key in self._reading.rows):
            raise RowsMoved("what was read before has changed, and the log has given up how") from error
        if not again:
            return
        behind = [row for row in stored if tags.table_row(*row.key) == error.facts.get("tag")] or list(stored)
        raise TableBehind(
            f"row {behind[0].key.key!r} of table {behind[0].key.table!r} is stored at version {behind[0].version}, and the log has "
            "given up what follows: was the table brought back from a backup?",
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
        """Takes the place of the newer record of what a table is, which the record expects. Raises RowsMoved: it is not what it was."""
        if opened.schema != self._opened[table].schema:
            raise RowsMoved(f"table {table!r} has other columns now")
        self._opened[table] = opened

    # -- writing

    def put(self, table: str, key: str, cells: Mapping[str, Json]) -> None:
        """Writes cells of a row, which need not be there; None: nothing is in it any more. Raises InvalidArgument, NotEncodable."""
        self._check_open()
        check_cells(self._schema(table), cells)
        self._change(RowKey(table, check_key(key)), cells)

    def delete(self, table: str, key: str) -> None:
        """Ends a row, if there is one."""
        self._check_open()
        self._changes[RowKey(self._schema(table).name, check_key(key))] = Change(True, None)

    def _change(self, key: RowKey, cells: Mapping[str, Json]) -> None:
        self._changes[key] = put(self._changes.get(key), cells)

    def add(self, part: Contribution) -> None:
        """Another library's part of the record."""
        self._check_open()
        self.extra.append(part)

    def _check_open(self) -> None:
        if self._ended:
            raise TransactionOver("this transaction has ended: begin another one")

    # -- for who commits it

    async def read_and_changed(self) -> list[tuple[RowKey, int, Change | None]]:
        """All rows that it read or changed: their versions, and what becomes of them."""
        await self._read(list(self._changes))
        return [(key, row.version, self._changes.get(key)) for key, row in self._reading.rows.items()]

    def end(self) -> None:
        """Nothing more is read or written."""
        self._ended = True

    async def contribution(self) -> Contribution:
        """What of it goes into the record. A row that is written was read: what is stored of it has to be known."""
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
        """It is in the log."""
        self.seqnum = seqnum
        for event in part.events:
            assert isinstance(event, Written), "a transaction writes rows"
            key = RowKey(event.id, event.key)
            row = changed(self._reading.rows[key], self._changes[key])._replace(version=seqnum)
            self._database.saw(row, [(seqnum, event)], self._opened[key.table])
