"""Tables of Apache Cassandra: the port over its driver, whose threads end here. The extra `cassandra` brings the driver.

    async with await CassandraTables.connect(["10.0.0.1"], keyspace="shop") as port: ...

- Every cell is written `USING TIMESTAMP`, with one statement for each row, which a replica applies as a whole or not at all. There is no
  TTL and no condition. Versions of rows are deleted in one range, which hides no newer cell.
- In mode `lwt` rows change by light-weight transactions only, and are read with consistency SERIAL: Cassandra finishes a transaction that
  may be pending, or that transaction never happens. All programs that share a table use SERIAL, or all of them use LOCAL_SERIAL
  (`consistency="LOCAL_QUORUM"`) in one data centre.
- A table is created from its schema. An existing table must have columns of these kinds, no TTL, and no column that was dropped and added
  again: Cassandra hides cells with time stamps from before the drop, and all of our time stamps are lower.
- Statements are prepared once; the driver does paging, routing and connections.
- A write that timed out may or may not be done: it raises WriteUnknown, and repeating it is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from boki_common.errors import BokiError, InvalidArgument
from boki_common.logs import get_logger
from boki_common.runtime.bodies import ThreadBodies
from boki_common.runtime.ports import Bodies
from bokiflow.tables.cassandra_types import (
    CQL,
    OURS,
    checked_columns,
    checked_keys,
    from_database,
    standing_of,
    swapped,
    table_text,
    to_database,
)
from bokiflow.tables.errors import TableRefused, TableUnavailable, WriteUnknown
from bokiflow.tables.schema import ABSENT, KEY, NAME, VERSION, Cell, RowKey, Schema, Stored
from bokiflow.tables.swap_rules import OP, OUTCOME, Standing, Swap
from bokilib.pauses import pauses
from bokilib.stacks import described

try:
    import cassandra
    from cassandra import (
        ConsistencyLevel,
        DriverException,
        InvalidRequest,
        OperationTimedOut,
        RequestExecutionException,
    )
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
    from cassandra.connection import ConnectionException
    from cassandra.policies import (
        DCAwareRoundRobinPolicy,
        ExponentialReconnectionPolicy,
        FallthroughRetryPolicy,
        RoundRobinPolicy,
        TokenAwarePolicy,
    )
    from cassandra.protocol import ConfigurationException, ErrorMessage, SyntaxException
except ImportError as missing:
    raise ImportError("tables of Cassandra need its driver: pip install cassandra-driver") from missing

T = TypeVar("T")

log = get_logger(__name__)

STATEMENTS: Final = 512
"""Prepared statements that are cached; each set of columns written together needs one."""
PREPARES: Final = 5
"""Attempts to prepare a statement with a column that was added a moment ago."""
TIMEOUT_S: Final = 10
DRIVER_TIMEOUTS: Final = 3
"""Multiple of the driver's time-out after which a call is given up: the driver sometimes loses a call when a node dies."""
RECONNECT_S: Final = (0.5, 8.0)
OWNERS: Final = "boki_tables"
HELPED: Final = "boki_helped"
CONSISTENCIES: Final = {
    "QUORUM": ConsistencyLevel.QUORUM,
    "LOCAL_QUORUM": ConsistencyLevel.LOCAL_QUORUM,
    "ALL": ConsistencyLevel.ALL,
}
PAGE_ROWS: Final = 1_000
PROTOCOL: Final = 4
"""The version of the native protocol, which Cassandra has supported since 2.2."""

_REFUSED: Final = (
    InvalidRequest,
    ConfigurationException,
    SyntaxException,
    cassandra.AlreadyExists,
    cassandra.Unauthorized,
)
_UNAVAILABLE: Final = (
    RequestExecutionException,
    OperationTimedOut,
    NoHostAvailable,
    ConnectionException,
    ErrorMessage,
    DriverException,
)


class CassandraTables:
    """Tables in one keyspace of Cassandra; an instance belongs to one event loop."""

    def __init__(
        self, cluster: Cluster, session: Session, keyspace: str, bodies: Bodies, serial: int, answer_timeout_s: float
    ) -> None:
        """Wrap a session of the driver; see `connect`.

        Args:
            cluster: the driver's cluster, which is shut down at the end.
            session: the driver's session.
            keyspace: the keyspace of the tables.
            bodies: the threads for blocking calls.
            serial: the consistency of reads of mode `lwt`.
            answer_timeout_s: the longest time that the driver may take for an answer, its own time-outs included.
        """
        self._cluster: Final = cluster
        self._session: Final = session
        self._keyspace: Final = keyspace
        self._bodies: Final = bodies
        self._serial: Final = serial
        self._answer_timeout_s: Final = answer_timeout_s
        self._loop: Final = asyncio.get_running_loop()
        self._prepared: dict[str, Any] = {}

    @classmethod
    async def connect(
        cls,
        hosts: Sequence[str],
        *,
        keyspace: str,
        port: int = 9042,
        replication: Mapping[str, str | int] | None = None,
        local_dc: str | None = None,
        consistency: str = "QUORUM",
        timeout_s: int = TIMEOUT_S,
        bodies: Bodies | None = None,
    ) -> Self:
        """Connect to Cassandra, and create the keyspace if it does not exist.

        Args:
            hosts: addresses of nodes to connect to first.
            keyspace: the keyspace of the tables.
            port: the port of the native protocol.
            replication: the replication of a keyspace that is created; by default SimpleStrategy with one copy.
            local_dc: the data centre whose nodes are used; `consistency` may then be "LOCAL_QUORUM".
            consistency: the consistency of reads and writes, which have to overlap.
            timeout_s: the driver's time-out for one request.
            bodies: the threads for blocking calls.

        Raises:
            TableUnavailable: no node answers.
            InvalidArgument: the keyspace or the consistency is not valid.
        """
        if not NAME.match(keyspace):
            raise InvalidArgument(
                f"expected a keyspace of small letters, digits and _, found {keyspace!r}", found=keyspace
            )
        if consistency not in CONSISTENCIES:
            raise InvalidArgument(
                f"expected one of {sorted(CONSISTENCIES)}, of which a read sees each write that was acknowledged; found {consistency!r}",
                found=consistency,
            )
        serial = ConsistencyLevel.LOCAL_SERIAL if consistency == "LOCAL_QUORUM" else ConsistencyLevel.SERIAL
        policy = DCAwareRoundRobinPolicy(local_dc) if local_dc else RoundRobinPolicy()
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(policy),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=CONSISTENCIES[consistency],
            serial_consistency_level=serial,
            request_timeout=timeout_s,
        )
        chosen = bodies or ThreadBodies()
        cluster = await chosen.run(lambda: _cluster(hosts, port, profile, timeout_s))
        try:
            session = await chosen.run(cluster.connect)
        except Exception as error:  # a driver that cannot connect raises errors of many classes
            await chosen.run(cluster.shutdown)
            raise TableUnavailable(f"no Cassandra answers at {list(hosts)}, port {port}: {described(error)}") from error
        made = cls(cluster, session, keyspace, chosen, serial, DRIVER_TIMEOUTS * timeout_s)
        copies = replication or {"class": "SimpleStrategy", "replication_factor": 1}
        text = ", ".join(f"'{name}': '{value}'" for name, value in copies.items())
        await made._change(f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{{text}}}", OWNERS)
        await made._change(
            f"CREATE TABLE IF NOT EXISTS {keyspace}.{OWNERS} (name text PRIMARY KEY, owner text)", OWNERS
        )
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                await self._bodies.run(self._cluster.shutdown)
        except TimeoutError:
            log.warning("driver of Cassandra did not shut down in time: it is left behind", keyspace=self._keyspace)
        if isinstance(self._bodies, ThreadBodies):
            self._bodies.flush()

    # -- TablePort

    async def ensure(self, schema: Schema) -> None:
        table = f'{self._keyspace}."{schema.name}"'
        columns = {**OURS[schema.mode], **{name: CQL[kind] for name, kind in schema.columns.items()}}
        await self._change(table_text(schema, table), schema.name)
        if schema.mode == "lwt":
            await self._change(
                f"CREATE TABLE IF NOT EXISTS {self._keyspace}.{HELPED} (op text PRIMARY KEY, outcome text)", HELPED
            )
        checked_keys(schema, await self._kinds(schema.name))
        there = await self._columns(schema.name)
        for name in sorted(columns.keys() - there.keys()):
            await self._change(f'ALTER TABLE {table} ADD IF NOT EXISTS "{name}" {columns[name]}', schema.name)
        checked_columns(
            schema, await self._columns(schema.name), await self._dropped(schema.name), await self._ttl(schema.name)
        )

    async def _columns(self, table: str) -> dict[str, str]:
        rows = await self._ask(
            "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",
            (self._keyspace, table),
            table,
        )
        return {row[0]: row[1] for row in rows}

    async def _kinds(self, table: str) -> dict[str, str]:
        text = "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
        return {row[0]: row[1] for row in await self._ask(text, (self._keyspace, table), table)}

    async def _dropped(self, table: str) -> list[str]:
        text = "SELECT column_name FROM system_schema.dropped_columns WHERE keyspace_name = ? AND table_name = ?"
        return [row[0] for row in await self._ask(text, (self._keyspace, table), table)]

    async def _ttl(self, table: str) -> int:
        text = "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
        rows = await self._ask(text, (self._keyspace, table), table)
        return int(rows[0][0]) if rows else 0

    async def claim(self, table: str, token: str) -> str:
        """Claim a table by a light-weight transaction; after an unknown outcome, claiming again returns the owner."""
        text = f"INSERT INTO {self._keyspace}.{OWNERS} (name, owner) VALUES (?, ?) IF NOT EXISTS"
        rows = await self._write(text, (table, token), table)
        applied, *there = rows[0]
        return token if applied else str(there[-1])

    async def read(self, schema: Schema, key: str) -> Stored:
        return await self._read(schema, key, None)

    async def _read(self, schema: Schema, key: str, at_most: int | None) -> Stored:
        versioned = schema.mode == "versioned"
        names = [ABSENT, *schema.columns]
        picked = ", ".join(f'"{name}", writetime("{name}")' for name in names)
        version = VERSION if versioned else f"{VERSION}, writetime({VERSION})"
        text = f'SELECT {picked}, {version} FROM {self._keyspace}."{schema.name}" WHERE {KEY} = ?'
        text += f" AND {VERSION} <= ?" if at_most is not None else ""
        text += f" ORDER BY {VERSION} DESC LIMIT 1" if versioned else ""
        rows = await self._ask(text, (key,) if at_most is None else (key, at_most), schema.name)
        if not rows:
            return {}
        *values, last = rows[0]
        values += [last, last] if versioned else [last]
        return {
            name: Cell(from_database(schema.columns.get(name), values[2 * at]), values[2 * at + 1])
            for at, name in enumerate([*names, VERSION])
            if values[2 * at + 1] is not None
        }

    async def write(self, schema: Schema, key: RowKey, cells: Mapping[str, Any], timestamp: int) -> None:
        versioned = schema.mode == "versioned"
        names = [name for name in sorted(cells) if not (versioned and name == VERSION)]
        assignments = ", ".join(f'"{name}" = ?' for name in names)
        text = f'UPDATE {self._keyspace}."{schema.name}" USING TIMESTAMP ? SET {assignments} WHERE {KEY} = ?'
        values = [to_database(schema.columns.get(name), cells[name]) for name in names]
        if versioned:
            await self._write(f"{text} AND {VERSION} = ?", (timestamp, *values, key.key, timestamp), schema.name)
        else:
            await self._write(text, (timestamp, *values, key.key), schema.name)

    async def keys(self, schema: Schema) -> AsyncIterator[str]:
        last: str | None = None
        while True:
            where = "" if last is None else f"WHERE token({KEY}) > token(?) "
            text = f'SELECT DISTINCT {KEY} FROM {self._keyspace}."{schema.name}" {where}LIMIT {PAGE_ROWS}'
            rows = await self._ask(text, () if last is None else (last,), schema.name)
            for row in rows:
                yield row[0]
            if len(rows) < PAGE_ROWS:
                return
            last = rows[-1][0]

    async def read_at(self, schema: Schema, key: str, at_most: int) -> Stored:
        return await self._read(schema, key, at_most)

    async def drop_below(self, schema: Schema, key: str, version: int) -> None:
        """Delete old versions; the deletion's time stamp is above those of the deleted versions and below those that stay."""
        text = f'DELETE FROM {self._keyspace}."{schema.name}" USING TIMESTAMP ? WHERE {KEY} = ? AND {VERSION} < ?'
        await self._write(text, (version - 1, key, version), schema.name)

    async def standing(self, schema: Schema, key: str) -> Standing:
        names = [OP, OUTCOME, ABSENT, *schema.columns]
        picked = ", ".join(f'"{name}"' for name in names)
        text = f'SELECT {picked} FROM {self._keyspace}."{schema.name}" WHERE {KEY} = ?'
        return standing_of(schema, names, await self._ask(text, (key,), schema.name, serial=True))

    async def swap(self, schema: Schema, key: str, seen: str | None, swap: Swap) -> bool:
        written = swapped(schema, swap)
        assignments = ", ".join(f'"{name}" = ?' for name in written)
        condition, values = ("= null", ()) if seen is None else ("= ?", (seen,))
        text = f'UPDATE {self._keyspace}."{schema.name}" SET {assignments} WHERE {KEY} = ? IF {OP} {condition}'
        rows = await self._write(text, (*written.values(), key, *values), schema.name)
        return bool(rows[0][0])

    async def help(self, op: str, outcome: str) -> None:
        """Note an outcome with a time stamp below that of `unhelp`: while Cassandra keeps the deletion, a late note stays deleted."""
        text = f"INSERT INTO {self._keyspace}.{HELPED} (op, outcome) VALUES (?, ?) USING TIMESTAMP 1"
        await self._write(text, (op, outcome), HELPED)

    async def helped(self, op: str) -> str | None:
        rows = await self._ask(f"SELECT outcome FROM {self._keyspace}.{HELPED} WHERE op = ?", (op,), HELPED)
        return str(rows[0][0]) if rows else None

    async def helps(self) -> AsyncIterator[str]:
        last: str | None = None
        while True:
            where = "" if last is None else "WHERE token(op) > token(?) "
            text = f"SELECT op FROM {self._keyspace}.{HELPED} {where}LIMIT {PAGE_ROWS}"
            rows = await self._ask(text, () if last is None else (last,), HELPED)
            for row in rows:
                yield row[0]
            if len(rows) < PAGE_ROWS:
                return
            last = rows[-1][0]

    async def unhelp(self, op: str) -> None:
        await self._write(f"DELETE FROM {self._keyspace}.{HELPED} USING TIMESTAMP 2 WHERE op = ?", (op,), HELPED)

    # -- the driver

    async def _change(self, text: str, table: str) -> None:
        """Run a statement that changes the schema; the driver waits until all nodes agree on it."""
        try:
            await self._answer(self._session.execute_async(text))
        except BokiError:
            raise
        except _REFUSED as error:
            raise TableRefused(f"Cassandra refuses to change table {table!r}: {error}", table=table) from error
        except _UNAVAILABLE as error:
            raise TableUnavailable(f"Cassandra does not change table {table!r}: {error}", table=table) from error

    async def _ask(self, text: str, values: tuple[Any, ...], table: str, *, serial: bool = False) -> list[Any]:
        try:
            statement = await self._statement(text)
            if not serial:
                return await self._answer(self._session.execute_async(statement, values))
            bound = statement.bind(values)
            bound.consistency_level = self._serial
            return await self._answer(self._session.execute_async(bound))
        except _REFUSED as error:
            raise TableRefused(f"Cassandra refuses to read table {table!r}: {error}", table=table) from error
        except _UNAVAILABLE as error:
            raise TableUnavailable(f"Cassandra does not read table {table!r}: {error}", table=table) from error

    async def _write(self, text: str, values: tuple[Any, ...], table: str) -> list[Any]:
        try:
            statement = await self._statement(text)
            return await self._answer(self._session.execute_async(statement, values))
        except _REFUSED as error:
            raise TableRefused(f"Cassandra refuses to write table {table!r}: {error}", table=table) from error
        except _UNAVAILABLE as error:
            raise WriteUnknown(f"a write to table {table!r} may or may not be done: {error}", table=table) from error

    async def _statement(self, text: str) -> Any:
        found = self._prepared.get(text)
        if found is None:
            found = await self._prepare(text)
            while len(self._prepared) >= STATEMENTS:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[text] = found
        return found

    async def _prepare(self, text: str) -> Any:
        """Prepare a statement; repeat it for a column that another process has just added and that statements may not name yet."""
        pause = pauses()
        for again in range(PREPARES):
            try:
                return await self._in_time(self._bodies.run(lambda: self._session.prepare(text)))
            except InvalidRequest as error:
                if "Undefined column" not in str(error) or again == PREPARES - 1:
                    raise
            await asyncio.sleep(pause.next())
        raise AssertionError("it returns or raises")

    async def _answer(self, asked: Any) -> list[Any]:
        """Wait for a future of the driver, which resolves in one of its threads, and return its rows."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()

        def resolve(error: BaseException | None, rows: list[Any]) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(rows)

        def soon(error: BaseException | None, rows: list[Any]) -> None:
            try:
                self._loop.call_soon_threadsafe(resolve, error, rows)
            except RuntimeError:
                pass  # the loop has ended, so no task waits for the answer

        asked.add_callbacks(lambda rows: soon(None, list(rows or ())), lambda error: soon(error, []))
        return await self._in_time(future)

    async def _in_time(self, asked: Awaitable[T]) -> T:
        """Wait for an answer of the driver.

        Raises:
            OperationTimedOut: the driver did not answer within `answer_timeout_s`.
        """
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                return await asked
        except TimeoutError as late:
            raise OperationTimedOut(f"the driver has not answered for {self._answer_timeout_s} s") from late


def _cluster(hosts: Sequence[str], port: int, profile: ExecutionProfile, timeout_s: int) -> Cluster:
    """Create the driver's cluster, which starts its threads. This blocks."""
    return Cluster(
        list(hosts),
        port=port,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=timeout_s,
        protocol_version=PROTOCOL,
        reconnection_policy=ExponentialReconnectionPolicy(*RECONNECT_S),
    )
