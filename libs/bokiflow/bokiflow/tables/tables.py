"""Tables of a database whose rows change exactly once, together with steps of workflows: the log decides, the database follows.

    log = bokilib.Log(client.book("shop"))
    tables = Tables(log, await CassandraTables.connect(["10.0.0.1"], keyspace="shop"))
    await tables.open(Schema("hotel", {"left": "int"}))

    async def book(tx: Transaction, hotel: str) -> bool: ...       # tx.get, tx.put

    await bokiflow.transact(tables, book, "7")                     # in a workflow of Worker(app, log)
    await tables.transact(book, "7")                               # elsewhere
    await tables.look("hotel", "7")                                # in a workflow, without a record: mode `versioned`
    await tables.change("stock", "7", take_one)                    # anywhere: mode `lwt`

- A transaction is one record of the log. It reads what is stored and what the log has above it, so it never misses what was decided.
- The database follows by milliseconds; whoever reads it directly sees that. `settle` brings it up to date after a crash.
- A table is of one book, in one mode; nobody else writes it. In mode `lwt` the database decides, row by row, and others may write.
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
from bokiflow.tables import catalog, swapping, upkeep, versions
from bokiflow.tables.applier import Applier
from bokiflow.tables.errors import TableRefused, TableUnavailable
from bokiflow.tables.ports import TablePort
from bokiflow.tables.rows import Row, RowKey, stored_row
from bokiflow.tables.schema import Schema, check_key, check_mode, check_schema
from bokiflow.tables.swap_rules import OneRow
from bokiflow.tables.table_events import Made, Written
from bokiflow.tables.transactions import Opened, Transaction
from bokilib.append.log import Log
from bokilib.ports import ConsistencyName
from bokilib.records.codec import JsonObject
from bokilib.records.contribution import joined
from bokilib.retention.carrier import EVERY_S
from bokilib.retention.checkpoint_rules import REWRITE_MS

P = ParamSpec("P")
R = TypeVar("R")

CACHED_ROWS: Final = 10_000
SHARED: Final = "shared"
"""Whose a table is that several books write."""
RETRIES: Final = 32


class Tables:
    """See the module. Belongs to one event loop.

    Attributes:
        log: of the book, the workers' own. port: the database. clock: for `swapping`.
        applier: writes what the log has decided to the database.
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
        """
        Args:
            cached_rows: that this process keeps; the log is asked whether one still is what it was. 0: none.
            keep_every_s: how often what is old is looked for, while the tables are entered (`upkeep.keep`).
            carry_ms: what is older is old. clock: a wall clock, for operations in mode `lwt`.
        """
        self.log: Final = log
        self.port: Final = port
        self.clock: Final = clock or boki.SystemClock()
        self.applier: Final = Applier(port, self.schema, self._forget)
        self._opened: dict[str, Opened] = {}
        self._known: OrderedDict[RowKey, tuple[Row, int]] = OrderedDict()
        """Rows, and which record of their table was the newest when they were read."""
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
        """What was not written to the database yet is left to others, and to `settle`."""
        assert self._keeping is not None, "it was entered"
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        await self.applier.close()

    # -- tables

    async def open(self, schema: Schema) -> None:
        """Opens a table, which is made if there is none; columns that it lacks are added.

        Raises:
            TableRefused: it is kept in another mode, has other kinds of columns, or is another book's. TableUnavailable.
        """
        made, seqnum = await catalog.ensured(self.log, check_schema(schema))
        await self.made(made, seqnum)

    async def made(self, made: Made, seqnum: int) -> Opened:
        """See `transactions.Database`."""
        schema = Schema(made.id, made.columns, made.mode)
        await self.port.ensure(schema)
        token = SHARED if made.mode == "lwt" else made.token
        owner = await self.port.claim(made.id, token)
        if owner != token:
            whose = (
                "by all who open it in mode 'lwt'"
                if owner == SHARED
                else "by another book, whose seqnums its rows have"
            )
            raise TableRefused(
                f"table {made.id!r} is kept {whose}: give this one another name, or keyspace; for a table of several, the nearest mode is "
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
        """What a table is. Raises InvalidArgument: it is not open."""
        return self.opened(table).schema

    def opened(self, table: str) -> Opened:
        """See `transactions.Database`."""
        found = self._opened.get(table)
        if found is None:
            raise InvalidArgument(f"table {table!r} is not open: await tables.open(Schema({table!r}, …))", found=table)
        return found

    async def learn(self, table: str, *, consistency: ConsistencyName = "linearizable") -> Opened:
        """See `transactions.Database`."""
        found, known = await catalog.newest(self.log, table, consistency=consistency), self.opened(table)
        return known if found is None or found[1] <= known.seqnum else await self.made(*found)

    # -- transactions

    async def begin(self) -> Transaction:
        """A transaction for `commit`."""
        await self.applier.room()
        return Transaction(self)

    async def commit(self, tx: Transaction) -> int:
        """Appends what it wrote, and what others added; returns where, 0 if that was nothing.

        Raises:
            Conflict, RowsMoved: run it again. AppendUnknown: perhaps it is in the log; then whoever reads the rows sees it.
        """
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
        """Runs `body(tx, …)` as a transaction outside of workflows, again while it loses.

        Raises:
            Conflict, RowsMoved: it lost too often. AppendUnknown: perhaps it committed. What the body raised: nothing was written.
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
        """A row as of now, outside of workflows."""
        return (await self.get_many(table, [key]))[0]

    async def get_many(self, table: str, keys: Sequence[str]) -> list[JsonObject | None]:
        """Rows as of now, outside of workflows, and in steps; all of one snapshot, but in mode `lwt`."""
        for key in keys:
            check_key(key)
        schema = self.schema(table)
        if schema.mode == "lwt":
            return [one.cells for one in await asyncio.gather(*(self.port.standing(schema, key) for key in keys))]
        tx = Transaction(self)
        return await tx.get_many(table, keys)

    # -- mode `versioned`

    async def look(self, table: str, key: str) -> JsonObject | None:
        """See `look_many`."""
        return (await self.look_many(table, [key]))[0]

    async def look_many(self, table: str, keys: Sequence[str]) -> list[JsonObject | None]:
        """Rows as of the newest place of which something was delivered: what was decided before, nothing later; it makes no record.

        While a database that does not answer is waited for, nothing else is delivered to the workflow, no timer either.

        Raises:
            TableRefused: the table has no versions. NotInWorkflow.
        """
        check_mode(self.schema(table), ("versioned",), "looking without a record")
        for key in keys:
            check_key(key)
        instance = cast(Instance | None, context())
        if instance is None:
            raise NotInWorkflow("only code of a workflow looks without a record; elsewhere: get_many, as_of")
        return cast("list[JsonObject | None]", await instance.look(lambda place: self.as_of(table, keys, place)))

    async def as_of(self, table: str, keys: Sequence[str], place: int) -> list[JsonObject | None]:
        """Rows of a versioned table as of a place that this session has seen. Raises VersionsGone, TableUnavailable, ForeignWrite."""
        return [row.value() for row in await self.rows_as_of(table, keys, place)]

    async def rows_as_of(self, table: str, keys: Sequence[str], place: int) -> list[Row]:
        """The same, with their versions."""
        check_mode(self.schema(table), ("versioned",), "looking at what was")
        found: list[Row | None] = await versions.of_log(self.log, table, keys, place)
        missing = [at for at, row in enumerate(found) if row is None]
        if missing:
            await self.learn(table, consistency="session")
            read = await versions.of_table(self.log, self.port, self.schema(table), [keys[at] for at in missing], place)
            for at, row in zip(missing, read, strict=True):
                found[at] = row
        return [row for row in found if row is not None]

    async def keys_at(self, table: str, place: int) -> list[str]:
        """Keys of all rows of a versioned table of which there ever was something, as of a place."""
        check_mode(self.schema(table), ("versioned",), "looking at what was")
        _, changed = await upkeep.changed(self.log, table)
        stored = {key async for key in self.port.keys(self.schema(table))}
        return sorted(stored | {key.key for key in changed})

    async def collect(self, table: str, *flows: Flow) -> int:
        """Deletes versions that no workflow of these groups of workers looks at any more; returns below which place that is.

        Args:
            flows: of all groups that look at the table: a workflow of another one, which looks at what is gone, is blocked.
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
        """Runs `body(row, …)` on one row of a table that others write too, and changes it, once; in a workflow as a step.

        It is run again while the row changes, so it must do nothing outside of `row`. What it raises undoes it, and is raised here.

        Raises:
            TableRefused: the table is of another mode. WriteUnknown (not in a workflow, where it is waited for): perhaps it was done.
        """
        schema = self.schema(table)
        check_mode(schema, ("lwt",), "changes of single rows that the database decides")
        return await swapping.change(self, self.opened(table), check_key(key), body, args, options)

    # -- rows

    async def stored(self, keys: Sequence[RowKey], opened: Mapping[str, Opened], *, anew: bool = False) -> list[Row]:
        """See `transactions.Database`."""
        found: dict[RowKey, Row] = {}
        for key in () if anew else keys:
            row, seqnum = self._known.get(key, (None, 0))
            if row is not None and seqnum == opened[key.table].seqnum:
                self._known.move_to_end(key)
                found[key] = row
        missing = [key for key in keys if key not in found]
        read = await asyncio.gather(*(self.port.read(opened[key.table].schema, key.key) for key in missing))
        found |= {key: stored_row(key, stored) for key, stored in zip(missing, read, strict=True)}
        return [found[key] for key in keys]

    def saw(self, row: Row, records: Sequence[tuple[int, Written]], opened: Opened) -> None:
        """See `transactions.Database`."""
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
        """Brings a table up to date with the log, and trims what the log need not keep of it any more; in mode `lwt`, forgets what was
        noted of operations that are over.

        Once in a while, and after a crash if somebody reads the database directly. Any process may do it, two at once are safe.

        Raises:
            TableUnavailable: the database lacks something still; nothing was trimmed.
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
            behind += upkeep.behind(await self.stored(some, opened, anew=True), rows)
            await Transaction(self).get_many(table, [key.key for key in some])
            await self.applier.applied(some)
            left = upkeep.behind(await self.stored(some, opened, anew=True), rows)
            if left:  # only the log has it
                raise TableUnavailable(
                    f"table {table!r} does not take {left} rows: nothing of it is trimmed", table=table
                )
        await upkeep.trim(self.log.book, stream, rows)
        return upkeep.Settled(len(keys), behind)

    async def settle_old(self) -> int:
        """Settles tables that are open here, of whose rows the log has records as old as a term; returns how many. Entered, it does so by
        itself. What cannot be settled now keeps its terms until it can.
        """
        settled = 0
        for table, opened in list(self._opened.items()):
            if opened.schema.mode != "lwt" and await upkeep.is_old(self.log, table, self._carry_ms):
                settled += await upkeep.tried(table, self.settle(table))
        return settled
