"""Beldi's logging on Apache Cassandra, written anew from how its paper describes it: one end of `benchmarks.apps`.

| table | holds |
|---|---|
| `intents` | each call of a function: arguments, and whether it is done |
| `reads` | what each read returned, by the step that read it |
| `invokes` | each call that a step made: the callee's id, then its result |
| `daal` | rows: of each key a list of parts, each with a value and the steps that wrote it; a full part is followed by a new one |

    call        intents IF NOT EXISTS · the function · its result into the caller's `invokes` · done
    read        the last part · reads IF NOT EXISTS
    write       the last part · value, step and size at once, IF the size is what it was
    invoke      invokes IF NOT EXISTS · the call

Kinder to it than its paper: functions call each other within the process, results and `done` are plain writes (they are the same
whoever repeats them), the last part is read without Paxos, rows are read at the same time, and a trip is written without Beldi's locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import RoundRobinPolicy

from benchmarks.apps_functions import Change, Function
from bokilib.records.codec import JsonObject

PART_WRITES: Final = 100
KEYSPACE: Final = "beldi"
TIMEOUT_S: Final = 60
_TABLES: Final = (
    "intents (id text PRIMARY KEY, args text, done boolean)",
    "reads (step text PRIMARY KEY, value text)",
    "invokes (step text PRIMARY KEY, callee text, result text)",
    "daal (key text, part int, value text, log map<text, boolean>, size int, PRIMARY KEY (key, part))",
)


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Beldi:
    """The tables, and calls of functions. `transactions`: light-weight ones so far."""

    def __init__(self, cluster: Cluster, session: Session) -> None:
        self.transactions = 0
        self._cluster: Final = cluster
        self._session: Final = session
        self._loop: Final = asyncio.get_running_loop()
        self._prepared: dict[str, Any] = {}

    @classmethod
    async def connect(cls, port: int) -> Self:
        """Connects, and makes the tables."""
        profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=TIMEOUT_S)

        def connect() -> tuple[Cluster, Session]:
            cluster = Cluster(
                ["127.0.0.1"],
                port=port,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                protocol_version=4,
                connect_timeout=TIMEOUT_S,
            )
            session = cluster.connect()
            copies = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            session.execute(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {copies}")
            session.set_keyspace(KEYSPACE)
            for table in _TABLES:
                session.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            return cluster, session

        return cls(*await asyncio.to_thread(connect))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._cluster.shutdown)

    async def ask(self, text: str, *values: Any) -> list[Any]:
        """One statement."""
        statement = self._prepared.get(text)
        if statement is None:
            statement = self._prepared[text] = await asyncio.to_thread(self._session.prepare, text)
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        resolve = self._loop.call_soon_threadsafe
        self._session.execute_async(statement, values).add_callbacks(
            lambda rows: resolve(future.set_result, list(rows or ())),
            lambda error: resolve(future.set_exception, error),
        )
        return await future

    async def ask_if(self, text: str, *values: Any) -> Any:
        """One light-weight transaction: its answer, which begins with whether it was applied."""
        self.transactions += 1
        return (await self.ask(text, *values))[0]

    async def fill(self, rows: Mapping[str, JsonObject]) -> None:
        """What is there in the beginning."""
        text = "INSERT INTO daal (key, part, value, size) VALUES (?, 0, ?, 0)"
        names = sorted(rows)
        for start in range(0, len(names), 50):
            await asyncio.gather(*(self.ask(text, name, _encode(rows[name])) for name in names[start : start + 50]))

    async def run(self, function: Function, id: str, args: Sequence[Any], caller: str = "") -> Any:
        """A call of a function."""
        text = "INSERT INTO intents (id, args, done) VALUES (?, ?, false) IF NOT EXISTS"
        await self.ask_if(text, id, _encode([one for one in args if not callable(one)]))
        result = await function(Instance(self, id), *args)
        if caller:
            await self.ask("UPDATE invokes SET result = ? WHERE step = ?", _encode(result), caller)
        await self.ask("UPDATE intents SET done = true WHERE id = ?", id)
        return result


class Instance:
    """One call: what its function does is logged, step by step. See `apps_functions.Access`."""

    def __init__(self, beldi: Beldi, id: str) -> None:
        self.id: Final = id
        self._beldi: Final = beldi
        self._steps = 0

    def _step(self) -> str:
        self._steps += 1
        return f"{self.id}#{self._steps}"

    async def call(self, function: Function, *args: Any) -> Any:
        """See `Access`."""
        step = self._step()
        text = "INSERT INTO invokes (step, callee) VALUES (?, ?) IF NOT EXISTS"
        await self._beldi.ask_if(text, step, step)
        return await self._beldi.run(function, step, args, step)

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """See `Access`."""
        steps = [self._step() for _ in names]
        return list(await asyncio.gather(*(self._read(name, step) for name, step in zip(names, steps, strict=True))))

    async def _read(self, name: str, step: str) -> JsonObject | None:
        rows = await self._beldi.ask("SELECT value FROM daal WHERE key = ? ORDER BY part DESC LIMIT 1", name)
        value = rows[0][0] if rows else None
        text = "INSERT INTO reads (step, value) VALUES (?, ?) IF NOT EXISTS"
        applied, *there = await self._beldi.ask_if(text, step, value)
        kept = value if applied else there[-1]
        return None if kept is None else msgspec.json.decode(kept, type=dict[str, Any])

    async def write(self, name: str, value: JsonObject) -> bool:
        """Writes a row; whether nobody else did since it was looked at."""
        step = self._step()
        text = "SELECT part, size, log[?] FROM daal WHERE key = ? ORDER BY part DESC LIMIT 1"
        rows = await self._beldi.ask(text, step, name)
        part, size, done_before = rows[0] if rows else (-1, PART_WRITES, None)
        if done_before:  # by this step, before it was interrupted
            return True
        if size >= PART_WRITES:
            text = "INSERT INTO daal (key, part, value, log, size) VALUES (?, ?, ?, ?, 1) IF NOT EXISTS"
            return bool((await self._beldi.ask_if(text, name, part + 1, _encode(value), {step: True}))[0])
        text = "UPDATE daal SET value = ?, log = log + ?, size = ? WHERE key = ? AND part = ? IF size = ?"
        done = await self._beldi.ask_if(text, _encode(value), {step: True}, size + 1, name, part, size)
        return bool(done[0])

    async def change(self, changes: Mapping[str, Change]) -> None:
        """See `Access`: a function for each row, which reads it and writes it."""
        await asyncio.gather(*(self.call(_change, name, change) for name, change in changes.items()))


async def _change(instance: Instance, name: str, change: Change) -> None:
    while True:
        (row,) = await instance.read([name])
        if await instance.write(name, change(row)):
            return
