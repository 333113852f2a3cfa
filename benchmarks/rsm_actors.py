"""Actors of others, for `benchmarks.rsm`: asyncio tasks on PostgreSQL, and asyncio tasks without durability.

On PostgreSQL a message is a row of an inbox. Each task has a part of the actors and takes up to a batch of their messages by one
transaction: it deletes the rows, writes the states that changed, and inserts the messages that the actors send. What was asked is answered
after the commit. States are in the memory of the process as well, as ours are, and are never read. A task that finds nothing waits until
its process wakes it, or the other process does so by NOTIFY.

    python -m benchmarks.rsm_actors DIRECTORY NUMBER

is one of the two processes of a rally, a player each. It answers `taken` as the hosts of `benchmarks.rsm_programs` do, and `serve SECONDS`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Final, NamedTuple

from benchmarks.postgres_peer import PORT
from benchmarks.rsm_child import serve
from boki_common.runtime.process import loop_factory, tune_memory
from bokilib.append.batcher import Driver

SETUP: Final = """
CREATE TABLE inbox (id bigserial PRIMARY KEY, task int NOT NULL, actor text NOT NULL, event jsonb NOT NULL);
CREATE INDEX ON inbox (task, id);
CREATE TABLE balls (id bigserial PRIMARY KEY, player int NOT NULL, sent_s float8 NOT NULL, data bytea NOT NULL);
CREATE TABLE players (player int PRIMARY KEY, hits bigint NOT NULL);
"""
SEND: Final = (
    "INSERT INTO inbox (task, actor, event) SELECT task, actor, event FROM unnest($1::int[], $2::text[], $3::jsonb[]) "
    "WITH ORDINALITY AS one (task, actor, event, number) ORDER BY number"
)
SEND_ONE: Final = "INSERT INTO inbox (task, actor, event) VALUES ($1, $2, $3)"
TAKE: Final = """
DELETE FROM inbox WHERE id = ANY(ARRAY(SELECT id FROM inbox WHERE task = $1 ORDER BY id LIMIT $2)) RETURNING id, actor, event
"""
STORE: Final = """
INSERT INTO objects (name, value) SELECT * FROM unnest($1::text[], $2::jsonb[])
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
IN_FLIGHT: Final = 2
"""Transactions of messages that are sent together, at once: as many as an `Rsm` has records."""


BALL_BYTES: Final = 100


class Handled(NamedTuple):
    """The effects of a message: states that changed, by name, messages to actors, and the answer."""

    changed: dict[str, Any]
    sends: Sequence[tuple[str, Any]]
    answer: int


Behaviour = Callable[[dict[str, Any], str, Any], Handled]
"""Handles a message of an actor, given all states by name; it changes none of them."""


def add(states: dict[str, Any], actor: str, event: Any) -> Handled:
    """A counter adds a number."""
    total = states.get(actor, 0) + event["add"]
    return Handled({actor: total}, (), total)


def count_words(states: dict[str, Any], actor: str, event: Any) -> Handled:
    """A counter of words counts a batch; `top` knows the most frequent word."""
    if actor == "top":
        is_higher = event["count"] > states.get("top", {"count": 0})["count"]
        return Handled({"top": event} if is_higher else {}, (), 0)
    changed: dict[str, Any] = {}
    high, best = states.get(actor, 0), ""
    for word in event["words"]:
        name = f"{actor}/{word}"
        found = changed[name] = changed.get(name, states.get(name, 0)) + 1
        if found > high:
            high, best = found, word
    if best:
        changed[actor] = high
    return Handled(changed, [("top", {"word": best, "count": high})] if best else (), len(event["words"]))


class Actors:
    """The actors of this process, on a pool of connections to PostgreSQL; see the module."""

    def __init__(
        self, pool: Any, behaviour: Behaviour, *, tasks: int, batch: int, together: bool = False, prefix: str = ""
    ) -> None:
        """Prepare the actors.

        Args:
            pool: connections; each task takes one for itself.
            behaviour: of all actors.
            tasks: how many there are.
            batch: the most messages of a transaction.
            together: messages that are asked at the same time share a transaction; else each has its own.
            prefix: of the names of actors: those of one run.
        """
        self._pool: Final = pool
        self._behaviour: Final = behaviour
        self._tasks: Final = tasks
        self._batch: Final = batch
        self._together: Final = together
        self._prefix: Final = prefix
        self._states: Final[dict[str, Any]] = {}
        self._woken: Final = [asyncio.Event() for _ in range(tasks)]
        self._asked: Final[dict[int, asyncio.Future[int]]] = {}
        self._numbers = 0
        self._unsent: list[tuple[int, str, Any]] = []
        self._sending: Final = Driver(self._send_all, "actors", in_flight=IN_FLIGHT)
        self._working: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Actors]:
        """The tasks, for as long as the block lasts."""
        self._working = [asyncio.create_task(self._work(number)) for number in range(self._tasks)]
        try:
            yield self
        finally:
            for task in self._working:
                task.cancel()
            await asyncio.gather(*self._working, return_exceptions=True)

    async def ask(self, actor: str, event: dict[str, Any]) -> int:
        """Send a message, and return the answer, once all of it is durable."""
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        row = (self._task_of(actor), actor, {**event, "asked": number})
        if self._together:
            self._unsent.append(row)
            self._sending.wake()
        else:
            await self._pool.execute(SEND_ONE, *row)
            self._woken[row[0]].set()
        return await answer

    def _task_of(self, actor: str) -> int:
        return sum(actor.encode()) % self._tasks

    async def _send_all(self) -> None:
        while self._unsent:
            some, self._unsent = self._unsent, []
            try:
                await self._pool.execute(SEND, *(list(column) for column in zip(*some, strict=True)))
            except Exception as error:
                self._fail(error)
                raise
            for task in {row[0] for row in some}:
                self._woken[task].set()

    async def _work(self, task: int) -> None:
        try:
            async with self._pool.acquire() as connection:
                while True:
                    self._woken[task].clear()
                    if not await self._one_batch(connection, task):
                        await self._woken[task].wait()
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        """Fail what was asked: a task ended."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error)

    async def _one_batch(self, connection: Any, task: int) -> int:
        """Handle a batch by one transaction; return how many messages it had."""
        changed: dict[str, Any] = {}
        sends: list[tuple[int, str, Any]] = []
        answers: list[tuple[int, int]] = []
        async with connection.transaction():
            rows = sorted(await connection.fetch(TAKE, task, self._batch), key=lambda row: int(row[0]))
            for _, actor, event in rows:
                done = self._behaviour(self._states, actor, event)
                self._states.update(done.changed)
                changed.update(done.changed)
                sends += [(self._task_of(to), to, message) for to, message in done.sends]
                if "asked" in event:
                    answers.append((event["asked"], done.answer))
            if changed:
                await connection.execute(STORE, [self._prefix + name for name in changed], list(changed.values()))
            if sends:
                await connection.execute(SEND, *(list(column) for column in zip(*sends, strict=True)))
        for to in {row[0] for row in sends}:
            self._woken[to].set()
        for number, answer in answers:
            self._asked.pop(number).set_result(answer)
        return len(rows)


class Queues:
    """Counters of words as asyncio tasks with queues, in memory alone."""

    def __init__(self, names: Sequence[str]) -> None:
        self._states: Final[dict[str, Any]] = {}
        self._queues: Final[dict[str, asyncio.Queue[tuple[Any, asyncio.Future[int] | None]]]] = {
            name: asyncio.Queue() for name in (*names, "top")
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Queues]:
        """The tasks, for as long as the block lasts."""
        working = [asyncio.create_task(self._work(name)) for name in self._queues]
        try:
            yield self
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def ask(self, actor: str, event: dict[str, Any]) -> int:
        """Send a message, and return the answer."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queues[actor].put_nowait((event, answer))
        return await answer

    async def _work(self, actor: str) -> None:
        queue = self._queues[actor]
        while True:
            event, answer = await queue.get()
            done = count_words(self._states, actor, event)
            self._states.update(done.changed)
            for to, message in done.sends:
                self._queues[to].put_nowait((message, None))
            if answer is not None:
                answer.set_result(done.answer)


# -- a player of a rally


class Player:
    """A player of two, each in its process: a ball is a row, and each hit one transaction."""

    def __init__(self, connection: Any, number: int) -> None:
        self._connection: Final = connection
        self._number: Final = number
        self._told: Final = asyncio.Event()
        self._until_s = 0.0
        self.taken: Final = array("d")

    def told(self, *_: object) -> None:
        """Note that a ball may have come."""
        self._told.set()

    async def serve(self, seconds: float, data: bytes) -> None:
        """Begin a rally of so many seconds."""
        self._until_s = perf_counter() + seconds
        async with self._connection.transaction():
            await self._send(data)

    async def play(self) -> None:
        """Send balls back."""
        while True:
            await self._told.wait()
            self._told.clear()
            async with self._connection.transaction():
                await self._hit()

    async def _hit(self) -> None:
        balls = await self._connection.fetch("DELETE FROM balls WHERE player = $1 RETURNING sent_s, data", self._number)
        for sent_s, data in balls:
            now_s = perf_counter()
            self.taken.append(now_s - sent_s)
            await self._connection.execute("UPDATE players SET hits = hits + 1 WHERE player = $1", self._number)
            if self._number or now_s < self._until_s:
                await self._send(data)

    async def _send(self, data: bytes) -> None:
        await self._connection.execute(
            "WITH sent AS (INSERT INTO balls (player, sent_s, data) VALUES ($1, $2, $3) RETURNING player) "
            "SELECT pg_notify('player' || player, '') FROM sent",
            1 - self._number,
            perf_counter(),
            data,
        )


async def connected(directory: str) -> Any:
    """Return a connection to the server of `benchmarks.postgres_peer`."""
    asyncpg = importlib.import_module("asyncpg")
    return await asyncpg.connect(host=directory, port=PORT, user="bench", database="postgres")


async def run(directory: str, number: int) -> None:
    """Run a player until the input ends."""
    connection, listening = await connected(directory), await connected(directory)
    await connection.execute("INSERT INTO players VALUES ($1, 0)", number)
    player = Player(connection, number)
    await listening.add_listener(f"player{number}", player.told)
    playing = asyncio.create_task(player.play())
    serving: list[asyncio.Task[None]] = []

    def first(seconds: str) -> None:
        serving[:] = [asyncio.create_task(player.serve(float(seconds), os.urandom(BALL_BYTES)))]

    def taken() -> list[float]:
        found = list(player.taken)
        del player.taken[:]
        return found

    await serve({"serve": first, "taken": taken})
    playing.cancel()
    await asyncio.gather(playing, *serving, return_exceptions=True)


def main() -> None:
    tune_memory()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
