"""A PostgreSQL of its own, below a temporary directory, and Retwis on it: JSON objects in one table, SERIALIZABLE, again after 40001.

    async with postgres(directory) as pool: ...         # None where PostgreSQL or asyncpg is not installed

The server is Debian's (`apt-get install postgresql`), started here on a Unix socket and ended behind. It refuses to run as root: then it
runs as `postgres`, else `nobody`. Every commit is flushed (fsync, synchronous_commit on), once, on one machine.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import psutil

from examples.retwis.app import FAN_OUT, SHOWN, TIMELINE, TIMELINE_POSTS, USER_POSTS, Choose, post, user, username

CONNECTIONS: Final = 32
START_TIMEOUT_S: Final = 30.0
PORT: Final = 5432
"""Part of the name of its socket: it listens on no port of the machine."""
SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "64",
    "max_pred_locks_per_transaction": "512",
    "jit": "off",
}
"""What differs from its defaults gives it memory, and spares it checkpoints and false conflicts within a run."""
PUSH: Final = """
UPDATE objects SET value = jsonb_set(value, '{posts}', CASE WHEN jsonb_array_length(value->'posts') >= $3
    THEN (value->'posts') - 0 ELSE value->'posts' END || to_jsonb($2::text)) WHERE name = ANY($1)
"""


def installed() -> Path | None:
    """Where the server's programs are; None where there are none."""
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("postgres")
    for folder in [*reversed(known), *([Path(found).resolve().parent] if found else [])]:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    return None


@asynccontextmanager
async def postgres(directory: Path) -> AsyncIterator[Any]:
    """A pool of connections to a new server with the table `objects`; None where there is no PostgreSQL."""
    if importlib.util.find_spec("asyncpg") is None:
        yield None
        return
    async with server_alone(directory) as server:
        if server is None:
            yield None
            return
        pool = await _pool(directory, server)
        await pool.execute("CREATE TABLE objects (name text PRIMARY KEY, value jsonb NOT NULL)")
        yield pool
        await pool.close()


@asynccontextmanager
async def server_alone(directory: Path) -> AsyncIterator[subprocess.Popen[Any] | None]:
    """A new server, whose socket is in the directory; None where there is no PostgreSQL. It may not answer yet."""
    programs = installed()
    if programs is None:
        yield None
        return
    directory.mkdir()
    who = _owner(directory)
    data = str(directory / "data")
    made = [str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "bench", "--locale=C", "-E", "UTF8"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, **who)
    options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = [str(programs / "postgres"), "-D", data, "-k", str(directory), "-p", str(PORT), *options]
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, **who)
    try:
        yield server
    finally:
        server.send_signal(signal.SIGINT)  # a fast end
        server.wait()


def _owner(directory: Path) -> dict[str, Any]:
    """Whose processes they are: ours, or, for root, somebody's who then owns the directory and can reach it."""
    if os.geteuid() != 0:
        return {}
    names = {one.pw_name for one in pwd.getpwall()}
    entry = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(directory, entry.pw_uid, entry.pw_gid)
    directory.parent.chmod(0o711)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


async def _pool(directory: Path, server: subprocess.Popen[Any]) -> Any:
    asyncpg = importlib.import_module("asyncpg")
    deadline = monotonic() + START_TIMEOUT_S
    while True:
        try:
            return await asyncpg.create_pool(
                host=str(directory),
                port=PORT,
                user="bench",
                database="postgres",
                min_size=CONNECTIONS,
                max_size=CONNECTIONS,
                init=_take_json,
            )
        except (OSError, asyncpg.PostgresError):
            if server.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(directory / 'log').read_text()[-2000:]}") from None
            await asyncio.sleep(0.1)


async def _take_json(connection: Any) -> None:
    """Values come and go as JSON does in the store: through msgspec."""
    await connection.set_type_codec(
        "jsonb",
        encoder=lambda value: b"\x01" + msgspec.json.encode(value),
        decoder=lambda data: msgspec.json.decode(memoryview(data)[1:]),
        schema="pg_catalog",
        format="binary",
    )


def processes(pool: Any) -> dict[str, int]:
    """The server and its children, by names that say whose processor time it is."""
    (parent,) = {
        psutil.Process(holder._con.get_server_pid()).ppid() for holder in pool._holders if holder._con is not None
    }
    return {
        f"postgres-{number}": one.pid
        for number, one in enumerate([psutil.Process(parent), *psutil.Process(parent).children()])
    }


class RetwisPostgres:
    """The operations of `examples.retwis.app.Retwis`, as one writes them on PostgreSQL.

    Attributes:
        again: transactions that were run again after a serialization failure.
    """

    def __init__(self, pool: Any) -> None:
        self.again = 0
        self._pool = pool
        self._failure: Any = importlib.import_module("asyncpg").SerializationError

    async def fill(self, objects: Sequence[tuple[str, Any]]) -> None:
        """Puts objects there."""
        async with self._pool.acquire() as connection:
            await connection.executemany("INSERT INTO objects VALUES ($1, $2)", objects)
        await self._pool.execute("VACUUM ANALYZE objects")

    async def login(self, name: str, password: str) -> str | None:
        async def body(connection: Any) -> str | None:
            known = await connection.fetchval("SELECT value FROM objects WHERE name = $1", username(name))
            if known is None:
                return None
            one = await connection.fetchval("SELECT value FROM objects WHERE name = $1", user(known["id"]))
            return str(one["auth"]) if one["password"] == password else None

        found: str | None = await self._serializable(body, readonly=True)
        return found

    async def profile(self, id: str) -> Any:
        return await self._pool.fetchval("SELECT value FROM objects WHERE name = $1", user(id))

    async def posts(self, id: str | None) -> list[Any]:
        async def body(connection: Any) -> list[Any]:
            name = TIMELINE if id is None else user(id)
            listed = await connection.fetchval("SELECT value->'posts' FROM objects WHERE name = $1", name)
            names = [post(one) for one in reversed(listed[-SHOWN:])]
            rows = await connection.fetch("SELECT value FROM objects WHERE name = ANY($1)", names)
            assert len(rows) == len(names)
            return [row[0] for row in rows]

        found: list[Any] = await self._serializable(body, readonly=True)
        return found

    async def post(self, author: str, id: str, body: str, choose: Choose) -> list[str]:
        async def publish(connection: Any) -> list[str]:
            followers = await connection.fetchval(
                "SELECT value->'followers' FROM objects WHERE name = $1", user(author)
            )
            to = list(choose(sorted(followers), min(FAN_OUT, len(followers))))
            made = {"id": id, "author": author, "body": body}
            await connection.execute("INSERT INTO objects VALUES ($1, $2)", post(id), made)
            await connection.execute(PUSH, sorted(user(one) for one in to), id, USER_POSTS)
            return to

        found: list[str] = await self._serializable(publish)
        await self._pool.execute(PUSH, [TIMELINE], id, TIMELINE_POSTS)
        return found

    async def _serializable(self, body: Callable[[Any], Awaitable[Any]], *, readonly: bool = False) -> Any:
        async with self._pool.acquire() as connection:
            while True:
                try:
                    async with connection.transaction(isolation="serializable", readonly=readonly):
                        return await body(connection)
                except self._failure:
                    self.again += 1
