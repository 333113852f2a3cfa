"""Tables of a database whose rows change exactly once, together with steps of workflows. The log decides, and the database follows.

    log = bokilib.Log(client.book("shop"))
    tables = Tables(log, await CassandraTables.connect(["10.0.0.1"], keyspace="shop"))
    await tables.open(Schema("hotel", {"left": "int"}))

    async def book(tx: Transaction, hotel: str) -> bool: ...       # tx.get, tx.put

    await bokiflow.transact(tables, book, "7")                     # in a workflow of Worker(app, log)
    await tables.transact(book, "7")                               # elsewhere
    await tables.look("hotel", "7")                                # in a workflow, without a record: mode `versioned`
    await tables.change("stock", "7", take_one)                    # anywhere: mode `lwt`

- A transaction is one record of the log. It reads the stored rows and the newer records of the log, so it sees every decided change.
- The database follows by milliseconds, which a program that reads it directly can see. `settle` brings it up to date after a crash.
- A table belongs to one book and has one mode, and only `Tables` write it. In mode `lwt` the database decides, row by row, and other
  programs may write.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, Self, TypeVar, cast

import boki
from boki_common.errors import Conflict, InvalidArgument
from bokiflow.client.flow import Flow
from bokiflow.errors import NotInWorkflow
from bokiflow.runtime.calls import context
from bokiflow.runtime.instance import Instance
from bokiflow.tables import swapping, upkeep, versions
from bokiflow.tables.applier import Applier
from bokiflow.tables.errors import TableRefused, TableUnavailable
from bokiflow.tables.ports import TablePort
from bokiflow.tables.schema import (
    PICKER,
    Made,
    RowKey,
    Schema,
    TableRow,
    Written,
    check_key,
    check_mode,
    check_schema,
    merged,
    stored_row,
)
from bokiflow.tables.swap_rules import OneRow
from bokiflow.tables.transactions import Opened, Transaction
from bokilib.append.log import Log
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.records.codec import JsonObject, copy_json
from bokilib.records.contribution import Contribution, check_in_book, joined
from bokilib.retention.carrier import EVERY_S
from bokilib.retention.checkpoint_rules import REWRITE_MS

P = ParamSpec("P")
R = TypeVar("R")

CACHED_ROWS: Final = 10_000
SHARED: Final = "shared"
"""The owner of every table of mode `lwt`, which several books may write."""
RETRIES: Final = 32
DEFINITION_ATTEMPTS: Final = 32


class Tables:
    """The open tables of a book and a database; an instance belongs to one event loop.

    Attributes:
        log: the log of the book, which the workers use, too.
        port: the database.
        clock: the wall clock, for operations of mode `lwt`.
        applier: writes decided changes to the database.
    """

    def __init__(
        self,
        log: Log,
        port: TablePort,
        *,
        cached_rows: int = CACHED_ROWS,
        keep_every_s: float = EVERY_S,
        carry_ms: int = REWRITE_MS,
        clock: boki.Clock | None = None,
    ) -> None:
        """Create the tables of a book, without opening any.

        Args:
            log: the log of the book; a worker of workflows that use these tables has to have the same one.
            port: the database.
            cached_rows: rows that this process caches; the log says at each read whether a cached row changed. 0 caches none.
            keep_every_s: seconds between rounds of retention while the tables are entered (`upkeep.keep`).
            carry_ms: milliseconds after which a record of the log is old, and its table is settled.
            clock: the wall clock, for operations of mode `lwt`.
        """
        self.log: Final = log
        self.port: Final = port
        self.clock: Final = clock or boki.SystemClock()
        self.applier: Final = Applier(port, self.schema, self._forget)
        self._opened: dict[str, Opened] = {}
        self._known: OrderedDict[RowKey, tuple[TableRow, int]] = OrderedDict()
        """Cached rows, each with the seqnum of its table's definition when the row was read."""
        self._cached_rows: Final = cached_rows
        self._keep_every_s: Final = keep_every_s
        self._carry_ms: Final = carry_ms
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        keeping = upkeep.keep(self.log, self.settle_old, every_s=self._keep_every_s, carry_ms=self._carry_ms)
        self._keeping = asyncio.create_task(keeping, name="bokiflow tables")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop retention and the applier. Other processes, or `settle`, write changes that the database does not have yet."""
        assert self._keeping is not None, "the tables were entered"
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        await self.applier.close()

    # -- tables

    async def open(self, schema: Schema) -> None:
        """Open a table. It is created if it does not exist, and gets the columns that it lacks.

        Args:
            schema: the table's name, columns and mode.

        Raises:
            InvalidArgument: the schema is not valid.
            TableRefused: the table has another mode, another kind of a column, or belongs to another book.
            TableUnavailable: the database does not answer.
        """
        made, seqnum = await ensured_definition(self.log, check_schema(schema))
        await self.made(made, seqnum)

    async def made(self, made: Made, seqnum: int) -> Opened:
        """Use a newer definition of a table; create in the database what it lacks.

        Raises:
            TableRefused: the table in the database does not fit, or belongs to another book.
        """
        schema = Schema(made.id, made.columns, made.mode)
        await self.port.ensure(schema)
        token = SHARED if made.mode == "lwt" else made.token
        owner = await self.port.claim(made.id, token)
        if owner != token:
            whose = "has mode 'lwt'" if owner == SHARED else "belongs to another book, whose seqnums its rows have"
            raise TableRefused(
                f"table {made.id!r} {whose}: give this one another name, or keyspace; for a table of several books, the nearest mode is "
                "'lwt'",
                table=made.id,
                expected=token,
                found=owner,
            )
        there = self._opened.get(made.id)
        if there is None or there.seqnum < seqnum:
            self._opened[made.id] = Opened(schema, seqnum, made.token)
        return Opened(schema, seqnum, made.token)

    def schema(self, table: str) -> Schema:
        """Return the definition of an open table.

        Raises:
            InvalidArgument: the table is not open.
        """
        return self.opened(table).schema

    def opened(self, table: str) -> Opened:
        """Return an open table.

        Raises:
            InvalidArgument: the table is not open.
        """
        found = self._opened.get(table)
        if found is None:
            raise InvalidArgument(f"table {table!r} is not open: await tables.open(Schema({table!r}, …))", found=table)
        return found

    async def learn(self, table: str, *, consistency: ConsistencyName = "linearizable") -> Opened:
        """Read the newest definition of an open table from the log, and use it."""
        found, known = await newest_definition(self.log, table, consistency=consistency), self.opened(table)
        return known if found is None or found[1] <= known.seqnum else await self.made(*found)

    # -- transactions

    async def begin(self) -> Transaction:
        """Return a new transaction for `commit`. It waits while the applier has too many rows to write."""
        await self.applier.room()
        return Transaction(self)

    async def commit(self, tx: Transaction) -> int:
        """Append the writes of a transaction, and the contributions that were added to it, as one record.

        Args:
            tx: the transaction, which ends.

        Returns:
            The seqnum of the record; 0 if there was nothing to append.

        Raises:
            Conflict: a row that was read has changed (also as RowsMoved): run the transaction again.
            AppendUnknown: the record may or may not be in the log; the next read of the rows shows it.
            WrongBook: tables of another book began it.
        """
        check_in_book("a transaction", tx.log.identity, self.log.origin("these tables"))
        part = await tx.contribution()
        tx.end()
        whole = joined([part, *tx.extra])
        if not whole.events:
            return 0
        seqnum = await self.log.append(whole)
        tx.committed(seqnum, part)
        return seqnum

    async def transact(
        self, body: Callable[Concatenate[Transaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """Run a body as a transaction outside of workflows; after a conflict it runs again.

        Args:
            body: called as `body(tx, *args, **options)`. An error that it raises is raised here; nothing was written then.
            *args: arguments of the body.
            **options: keyword arguments of the body.

        Returns:
            The result of the body.

        Raises:
            Conflict: the rows changed in each of its runs (also as RowsMoved).
            AppendUnknown: the transaction may or may not be committed.
        """
        for attempt in range(RETRIES + 1):
            tx = await self.begin()
            try:
                result = await body(tx, *args, **options)
                await self.commit(tx)
                return result
            except Conflict:
                if attempt == RETRIES:
                    raise
            finally:
                tx.end()
        raise AssertionError("it returns or raises")

    async def get(self, table: str, key: str) -> JsonObject | None:
        """Read a row as of now, outside of workflows; None if it does not exist."""
        return (await self.get_many(table, [key]))[0]

    async def get_many(self, table: str, keys: Sequence[str]) -> list[JsonObject | None]:
        """Read rows as of now, outside of workflows or in a step. They are of one snapshot, except in mode `lwt`."""
        for key in keys:
            check_key(key)
        schema = self.schema(table)
        if schema.mode == "lwt":
            rows = await asyncio.gather(*(self.port.standing(schema, key) for key in keys))
            return [copy_json(one.cells) for one in rows]
        tx = Transaction(self)
        return await tx.get_many(table, keys)

    # -- mode `versioned`

    async def look(self, table: str, key: str) -> JsonObject | None:
        """Read a row in workflow code without a record; see `look_many`."""
        return (await self.look_many(table, [key]))[0]

    async def look_many(self, table: str, keys: Sequence[str]) -> list[JsonObject | None]:
        """Read rows in workflow code, without a record, as of the newest place from which an event was delivered to the workflow.

        The rows have every change that was decided before that place and none that was decided later, so a replay reads the same. Until
        the database answers, no other event is delivered to the workflow, not even a timer.

        Args:
            table: an open table of mode `versioned`.
            keys: the keys of the rows.

        Raises:
            TableRefused: the table has another mode.
            NotInWorkflow: the caller is not code of a workflow.
        """
        check_mode(self.schema(table), ("versioned",), "looking without a record")
        for key in keys:
            check_key(key)
        instance = cast(Instance | None, context())
        if instance is None:
            raise NotInWorkflow("only code of a workflow looks without a record; elsewhere: get_many, as_of")
        return cast("list[JsonObject | None]", await instance.look(lambda place: self.as_of(table, keys, place)))

    async def as_of(self, table: str, keys: Sequence[str], place: int) -> list[JsonObject | None]:
        """Read rows of a versioned table as of a place that this session has seen.

        Args:
            table: an open table of mode `versioned`.
            keys: the keys of the rows.
            place: a seqnum of the log.

        Raises:
            TableRefused: the table has another mode.
            VersionsGone: versions as of this place are deleted.
            TableUnavailable: the database does not answer.
            ForeignWrite: another program wrote a row without the log.
        """
        return [row.value() for row in await self.rows_as_of(table, keys, place)]

    async def rows_as_of(self, table: str, keys: Sequence[str], place: int) -> list[TableRow]:
        """Read rows as `as_of` does, with their versions."""
        check_mode(self.schema(table), ("versioned",), "looking at what was")
        found: list[TableRow | None] = await versions.of_log(self.log, table, keys, place)
        missing = [at for at, row in enumerate(found) if row is None]
        if missing:
            await self.learn(table, consistency="session")
            read = await versions.of_table(self.log, self.port, self.schema(table), [keys[at] for at in missing], place)
            for at, row in zip(missing, read, strict=True):
                found[at] = row
        return [row for row in found if row is not None]

    async def keys_at(self, table: str, place: int) -> list[str]:
        """Return the keys of all rows that a versioned table has or ever had, sorted. Some may not exist as of `place`."""
        check_mode(self.schema(table), ("versioned",), "looking at what was")
        _, changed = await upkeep.changed(self.log, table)
        stored = {key async for key in self.port.keys(self.schema(table))}
        return sorted(stored | {key.key for key in changed})

    async def collect(self, table: str, *flows: Flow) -> int:
        """Delete the versions of rows that no running workflow can look at any more.

        Args:
            table: an open table of mode `versioned`.
            flows: the groups of workers whose workflows look at the table. A workflow of another group that looks at a deleted version
                is blocked.

        Returns:
            The place below which versions were deleted.

        Raises:
            TableRefused: the table has another mode.
        """
        check_mode(self.schema(table), ("versioned",), "collecting versions")
        place = await versions.oldest_place(self.log, flows)
        await versions.raise_floor(self.log, table, place)
        async for key in self.port.keys(self.schema(table)):
            await versions.drop(self.port, self.schema(table), key, place)
        return place

    # -- mode `lwt`

    async def change(
        self,
        table: str,
        key: str,
        body: Callable[Concatenate[OneRow, P], Awaitable[R]],
        *args: P.args,
        **options: P.kwargs,
    ) -> R:
        """Change a row of a table of mode `lwt` once; in a workflow as a step.

        Args:
            table: an open table of mode `lwt`.
            key: the key of the row.
            body: called as `body(row, *args, **options)`, again while other writers change the row, so it must have no effect outside of
                `row`. An error that it raises is raised here, and the row stays as it was.
            *args: arguments of the body.
            **options: keyword arguments of the body.

        Returns:
            The result of the body.

        Raises:
            TableRefused: the table has another mode.
            WriteUnknown: outside of workflows: the change may or may not be done. A workflow waits for the outcome.
        """
        schema = self.schema(table)
        check_mode(schema, ("lwt",), "changes of single rows that the database decides")
        return await swapping.change(self, self.opened(table), check_key(key), body, args, options)

    # -- rows

    async def stored(
        self, keys: Sequence[RowKey], opened: Mapping[str, Opened], *, fresh: bool = False
    ) -> list[TableRow]:
        """Return rows from the cache or the database; with `fresh`, from the database only."""
        found: dict[RowKey, TableRow] = {}
        for key in () if fresh else keys:
            row, seqnum = self._known.get(key, (None, 0))
            if row is not None and seqnum == opened[key.table].seqnum:
                self._known.move_to_end(key)
                found[key] = row
        missing = [key for key in keys if key not in found]
        read = await asyncio.gather(*(self.port.read(opened[key.table].schema, key.key) for key in missing))
        found |= {key: stored_row(key, stored) for key, stored in zip(missing, read, strict=True)}
        return [found[key] for key in keys]

    def saw(self, row: TableRow, records: Sequence[tuple[int, Written]], opened: Opened) -> None:
        """Cache a row, and have the applier write the records that the database may lack."""
        if records:
            self.applier.add(row.key, records)
        known, seqnum = self._known.get(row.key, (None, 0))
        if self._cached_rows and (known is None or (seqnum, known.version) <= (opened.seqnum, row.version)):
            self._known[row.key] = (row, opened.seqnum)
            self._known.move_to_end(row.key)
            while len(self._known) > self._cached_rows:
                self._known.popitem(last=False)

    def _forget(self, key: RowKey) -> None:
        self._known.pop(key, None)

    # -- upkeep

    async def settle(self, table: str) -> upkeep.Settled:
        """Write all changes of the log to the database, and trim them; in mode `lwt`, delete outcomes of operations that have expired.

        Call it from time to time, and after a crash if programs read the database directly. Any process may, also two at once.

        Args:
            table: an open table.

        Returns:
            How many rows had changes, and in how many the database lacked one.

        Raises:
            TableUnavailable: the database still lacks a change; nothing was trimmed.
        """
        opened = {table: self.opened(table)}
        if opened[table].schema.mode == "lwt":
            return upkeep.Settled(await swapping.forget(self, opened[table].token), 0)
        stream, rows = await upkeep.changed(self.log, table)
        keys = list(rows)
        behind = 0
        for start in range(0, len(keys), upkeep.ROWS_AT_ONCE):
            some = keys[start : start + upkeep.ROWS_AT_ONCE]
            for key in some:
                self._forget(key)
            behind += upkeep.behind(await self.stored(some, opened, fresh=True), rows)
            await Transaction(self).get_many(table, [key.key for key in some])
            await self.applier.applied(some)
            left = upkeep.behind(await self.stored(some, opened, fresh=True), rows)
            if left:  # only the log has their newest changes
                raise TableUnavailable(f"table {table!r} does not take {left} rows: the log keeps them", table=table)
        await upkeep.trim(self.log.book, stream, rows)
        return upkeep.Settled(len(keys), behind)

    async def settle_old(self) -> int:
        """Settle the open tables that have changes in the log as old as a term; return how many were settled.

        While the tables are entered, this runs by itself. A table that cannot be settled keeps its terms until it can.
        """
        settled = 0
        for table, opened in list(self._opened.items()):
            if opened.schema.mode != "lwt" and await upkeep.is_old(self.log, table, self._carry_ms):
                settled += await upkeep.tried(table, self.settle(table))
        return settled


# -- definitions of tables: the newest record of the catalog stream of a table, which the first process that opens it appends


async def newest_definition(
    log: Log, table: str, *, consistency: ConsistencyName = "linearizable"
) -> tuple[Made, int] | None:
    """Read the newest definition of a table and its seqnum; None if the book has no such table."""
    tag = tags.table_catalog(table)
    record = await log.book.read_prev(tag, consistency=consistency)
    if record is None:
        return None
    made = [event for event in PICKER.of(record.seqnum, await log.open(record), table) if isinstance(event, Made)]
    return (made[-1], record.seqnum) if made else None


async def ensured_definition(log: Log, schema: Schema) -> tuple[Made, int]:
    """Return the definition of a table with at least the columns of a schema, and its seqnum; append it where it is missing.

    Raises:
        TableRefused: the table has another mode, or a column of another kind.
    """
    for attempt in range(DEFINITION_ATTEMPTS):
        found = await newest_definition(log, schema.name)
        if found is None:
            wanted, last = Made(schema.name, schema.mode, schema.columns, f"{log.by}"), None
        else:
            made, last = found
            whole = merged(Schema(made.id, made.columns, made.mode), schema)
            if whole.columns == made.columns:
                return found
            wanted = Made(made.id, made.mode, whole.columns, made.token)
        tag = tags.table_catalog(schema.name)
        try:
            return wanted, await log.append(Contribution((tag,), {tag: last}, (wanted,)), settle=True)
        except Conflict:
            if attempt == DEFINITION_ATTEMPTS - 1:
                raise
    raise AssertionError("it returns or raises")
