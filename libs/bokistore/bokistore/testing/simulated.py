"""Store program of the simulator: `boki sim run --profile store`.

Workers on hosts of their own run transactions on a few lists, at either isolation level, while they are killed, paused, cut off and given
wrong clocks. Other hosts make checkpoints and trims, delete objects and create them again, and watch one. Two of three hosts cancel calls
while they are in flight. All answers are noted beside the simulation, so that notes survive the process that made them, and are compared
with the final lists:

- Transactions that were reported committed are there, once; refused ones are not; at most one attempt of each call is.
- There is no cycle of dependencies that the level forbids (`cycles`).
- A counter without conditions has at least the acknowledged increments and at most those begun, and no session reads less than it has seen.
- Each change that a watcher sees begins where the one before ended.
- Programs change in place what they read, and what they gave: nothing else has that. A model with aliases is read as it was put.
- An object that was deleted is gone; one that was created again begins empty.
- A call that was cancelled happened once or not at all, and its tasks end.
- After days, in which younger objects were forgotten, all of this still holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import boki
import boki.sim
from boki_common.errors import BokiError, Conflict
from boki_common.runtime.ports import Random
from bokilib.errors import NotEncodable
from bokilib.records.codec import Json, JsonObject
from bokilib.records.isolation import Isolation
from bokilib.testing import CallCancelled, Cancellations, all_ended
from bokilib.testing.odd_values import PARCEL, parcel
from bokistore.commit.transactions import Transaction
from bokistore.store import BokiStore, StoreSettings
from bokistore.testing.cycles import Transacted, anomalies

KEYS: Final = ("a", "b", "c", "d")
COUNTER: Final = "counter"
BOOK: Final = "shop"
SECONDS: Final = 4.0
READS: Final = 4
"""Reads of the counter by the task that incremented it, in a row, so that it may be followed."""
TASKS: Final = 3
"""Tasks of a worker; their transactions commit together."""
LEVELS: Final[tuple[tuple[Isolation, ...], ...]] = (("serializable",), ("snapshot",), ("serializable", "snapshot"))
"""A seed takes one of these; under the last one, histories are held to the weaker level."""
DAYS_S: Final = 9 * 86_400.0
HOUR_S: Final = 2 * 3_600.0
STRAY: Final = -1
"""A number that programs put into values that they read or gave: in place, so that nothing else may ever have it."""
PARCELS_IN: Final = 3
"""The janitor keeps one of so many objects in a collection of models."""
AFTERWARDS_S: Final = 1.0
"""Programs work for this long after the last fault has ended."""
SETTLED_S: Final = 5.0
"""Pause before the lists are judged, once appends are taken: one of a program that ended may still be on its way into the log. Longer
than the longest latency of the simulator's network."""
RETRY_S: Final = 0.1
TIMEOUTS_S: Final = (1.0, 8.0, 60.0)
CANCELLED: Final = (0, 3, 8)
"""A host cancels one of so many calls; 0: none."""

R = TypeVar("R")


@dataclass
class Call:
    """A call of `transact`. Each run of its body is an attempt.

    Attributes:
        attempts: their numbers.
        outcome: "ok", "refused", or "" while it is unknown.
        committed: the attempt whose result was returned.
    """

    attempts: list[int] = field(default_factory=list)
    outcome: str = ""
    committed: int = 0


@dataclass
class Notes:
    """Calls and answers of all programs."""

    attempts: dict[int, Transacted] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    counted: int = 0
    begun_to_count: int = 0
    watched: int = 0
    deleted: int = 0
    tended: int = 0
    stop: bool = False

    def attempt(self, call: Call) -> Transacted:
        """Begin an attempt of a call, with a number of its own."""
        made = Transacted(len(self.attempts) + 1)
        self.attempts[made.number] = made
        call.attempts.append(made.number)
        return made


def faults_of(notes: Notes, last: dict[str, list[int]], counter: int, *, serializable: bool) -> list[str]:
    """Return what is wrong with a history, given the final lists and counter."""
    there = {number for values in last.values() for number in values}
    found = []
    for call in notes.calls:
        applied = [number for number in call.attempts if number in there]
        if call.outcome == "refused" and applied:
            found.append(f"transaction {applied} was refused, and is there")
        if len(applied) > 1:
            found.append(f"one call committed twice: {applied}")
        writes = call.outcome == "ok" and notes.attempts[call.committed].appended
        if writes and applied != [call.committed]:
            found.append(f"{call.committed} was reported committed; there is {applied}")
    if not notes.counted <= counter <= notes.begun_to_count:
        found.append(f"expected a count of {notes.counted} to {notes.begun_to_count}, found {counter}")
    reads = {call.committed for call in notes.calls if call.outcome == "ok"}
    history = [one for one in notes.attempts.values() if one.number in (there if one.appended else reads)]
    return found or anomalies(history, last, serializable=serializable)


class Shop:
    """A run of the simulator; `program` starts it."""

    def __init__(self, cluster: boki.sim.Cluster) -> None:
        self.notes = Notes()
        self.levels: tuple[Isolation, ...] = LEVELS[cluster.seed % len(LEVELS)]
        self._cluster = cluster

    async def run(self) -> None:
        """Work until some time after the last fault, and judge the answers."""
        cluster, notes = self._cluster, self.notes
        count = 2 + cluster.seed % 2
        hosts = [cluster.host(f"worker-{number}", self.work) for number in range(1, count + 1)]
        hosts += [cluster.host("tender", self.tend), cluster.host("janitor", self.clean)]
        watching = cluster.host("watcher", self.watch)
        await cluster.faults_over()
        await asyncio.sleep(AFTERWARDS_S)
        notes.stop = True
        for host in hosts:
            await host.result()
        await watching.stop()
        async with await cluster.connect() as client:
            store = BokiStore(client.book(BOOK), settings=StoreSettings(checkpoints=False))
            await when_taken(partial(store.object("settled").inc, "n"))
            await asyncio.sleep(SETTLED_S)
            last = {key: await _list(store, key) for key in KEYS}
            counter = await store.object(COUNTER).get("n", 0, consistency="linearizable")
        assert isinstance(counter, int)
        found = faults_of(notes, last, counter, serializable=self.levels == ("serializable",))
        assert not found, found[0]
        lists: dict[str, JsonObject] = {key: {"l": list[Json](values)} for key, values in last.items() if values}
        await self.days({**lists, **({COUNTER: {"n": counter}} if counter else {})})

    async def days(self, last: dict[str, JsonObject]) -> None:
        """Let days pass in which younger objects are deleted and forgotten; the others must keep their values.

        Each process must find them unchanged, whether it reads, appends operations without a condition or runs a transaction.
        """
        for number in range(2):
            await self._forget(f"young/{number}")
            async with await self._cluster.connect() as client:
                store = BokiStore(client.book(BOOK))
                found = dict(zip(last, await store.values(list(last)), strict=True))
                assert found == last, f"after days objects are {found}, expected {last}"
                if COUNTER in last and (counted := last[COUNTER].get("n", 0)):
                    assert isinstance(counted, int)
                    incremented = await when_taken(partial(store.object(COUNTER).inc, "n"))
                    assert incremented == counted + 1, "a blind operation began from nothing"
                    last[COUNTER] = {"n": counted + 1}
                assert await store.object(f"young/{number}").value() is None, "what was deleted is back"

    async def _forget(self, young: str) -> None:
        """Write and delete an object, and have its stream forgotten days later."""
        cluster = self._cluster
        async with await cluster.connect() as client:
            store = BokiStore(client.book(BOOK))
            await when_taken(partial(store.object(young).set, "n", 1))
            await when_taken(partial(store.delete, young))
        await cluster.rest(DAYS_S)
        async with await cluster.connect() as client:
            store = BokiStore(client.book(BOOK))
            await when_taken(partial(store.object("clock").inc, "days"))
            for _ in range(2):
                await when_taken(partial(store.tend, young))
            await cluster.rest(HOUR_S)
            await when_taken(partial(store.tend, young))

    async def store(self, env: boki.sim.Environment) -> BokiStore:
        """Open the store of a host's start, with settings that it draws."""
        client = await env.connect(timeout=_one_of(env.random, TIMEOUTS_S))
        settings = StoreSettings(
            isolation=_one_of(env.random, self.levels),
            checkpoint_records=_one_of(env.random, (3, 20, 1_000)),
            grace_ms=_one_of(env.random, (3_000, 60_000)),
            retention_ms=_one_of(env.random, (5_000, 86_400_000)),
            aux_data=env.random.below(3) > 0,
            followed_objects=_one_of(env.random, (0, 2, 100)),
        )
        return BokiStore(client.book(BOOK), settings=settings)

    # -- transactions

    async def work(self, env: boki.sim.Environment) -> None:
        """Run several tasks, whose transactions commit together."""
        store, cancels = await self.store(env), cancellations(env)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TASKS):
                tasks.create_task(self._work(env, store, cancels))
        await all_ended(env.running_tasks, "bokistore transaction", "bokistore claim")

    async def _work(self, env: boki.sim.Environment, store: BokiStore, cancels: Cancellations) -> None:
        while not self.notes.stop:
            if env.random.below(4):
                await self._transact(env, store, cancels)
            else:
                await self._count(store, cancels)
            await asyncio.sleep(env.random.below(100) / 1000)

    async def _transact(self, env: boki.sim.Environment, store: BokiStore, cancels: Cancellations) -> None:
        notes, call = self.notes, Call()
        notes.calls.append(call)
        keys = env.random.shuffled(KEYS)
        read, written = keys[:2], keys[: env.random.below(3)]
        alone = env.random.below(4) == 0

        async def body(tx: Transaction) -> int:
            one = notes.attempt(call)
            for key in read:
                value: Any = await tx[key].get("l", [])
                one.read[key] = list(value)
                value.append(STRAY)
            for key in written:
                tx[key].push("l", one.number)
                one.appended[key] = one.number
            return one.number

        async def transact() -> int:
            if not alone:
                return await store.transact(body)
            async with store.transaction() as tx:
                return await body(tx)

        try:
            committed = await cancels.call(transact)
        except Conflict:
            call.outcome = "refused"
        except BokiError as error:
            call.outcome = "refused" if error.definite else ""
        else:
            call.outcome, call.committed = "ok", committed

    async def _count(self, store: BokiStore, cancels: Cancellations) -> None:
        self.notes.begun_to_count += 1
        counter = store.object(COUNTER)

        async def together() -> Any:
            async with store.snapshot(of=[COUNTER]) as snapshot:
                value: Any = await snapshot.value(COUNTER) or {}
                found, value["n"] = value.get("n", 0), STRAY
                return found

        try:
            least = await cancels.call(partial(counter.inc, "n"))
        except BokiError as error:
            self.notes.begun_to_count -= error.definite
            return
        self.notes.counted += 1
        reads: list[Callable[[], Awaitable[Any]]] = [*[partial(counter.get, "n")] * READS, together]
        for read in reads:
            try:
                found = await cancels.call(read)
            except CallCancelled:
                continue
            except BokiError:
                return  # it could not be read
            assert isinstance(found, int) and found >= least, f"a session that had seen {least} read {found}"
            least = found

    # -- beside them

    async def tend(self, env: boki.sim.Environment) -> None:
        """Make checkpoints and trims, whether due or not."""
        store, cancels = await self.store(env), cancellations(env)
        while not self.notes.stop:
            try:
                name = _one_of(env.random, (*KEYS, COUNTER))
                self.notes.tended += bool(await cancels.call(partial(store.tend, name)))
            except BokiError:
                pass  # it is repeated
            await asyncio.sleep(env.random.below(500) / 1000)

    async def clean(self, env: boki.sim.Environment) -> None:
        """Create objects, delete them or let them expire, and create them again."""
        store, cancels = await self.store(env), cancellations(env)
        while not self.notes.stop:
            token = env.random.token(6)
            name = f"own/{token.hex()}"
            try:
                if token[0] % PARCELS_IN == 0:
                    await cancels.call(partial(self._one_parcel, store, name))
                for _ in range(3):
                    await cancels.call(partial(self._one_life, store, name, expires=env.random.below(2) == 0))
                    await store.tend(name)
            except NotEncodable as error:
                raise AssertionError(f"a value of {name} was refused, or cannot be read") from error
            except BokiError:
                pass  # the object's state is unknown; the next one has another name
            await asyncio.sleep(env.random.below(300) / 1000)

    async def _one_parcel(self, store: BokiStore, name: str) -> None:
        """Put a model into a collection, and read it."""
        parcels, given = store.collection("parcels", PARCEL), parcel(name)
        await parcels.put(name, given)
        given.lines[0].append("never")
        for _ in range(2):
            found: Any = await parcels.get(name)
            assert found == parcel(name), f"the parcel of {name} was put, and is {found}"
            found.lines[0].append("never")
        await parcels.delete(name)

    async def _one_life(self, store: BokiStore, name: str, *, expires: bool) -> None:
        value: Any = [[1]]
        await store.object(name).set("l", value)
        value[0].append(STRAY)
        for _ in range(2):
            found: Any = await store.object(name).get("l")
            assert found == [[1]], f"{name} was created again, expected [[1]], found {found}"
            found[0].append(STRAY)
        if expires:
            await store.expire(name, 1)
            gone = await store.sweep([name]) == [name]
        else:
            gone = await store.delete(name)
        assert gone, f"{name} is there, and could not be deleted"
        assert await store.object(name).value(consistency="linearizable") is None, f"{name} is deleted, and there"
        self.notes.deleted += 1

    async def watch(self, env: boki.sim.Environment) -> None:
        """Follow a list until the host is stopped."""
        store, cancels = await self.store(env), cancellations(env)
        before: object = None
        seqnum = 0

        async def changes() -> None:
            nonlocal before, seqnum
            async for change in store.object(KEYS[0]).watch(start=seqnum + 1 if seqnum else None):
                assert change.seqnum > seqnum, f"a change at {change.seqnum} after one at {seqnum}"
                assert not seqnum or change.before == before, f"from {before} to {change.before} before {change.seqnum}"
                before, seqnum = deepcopy(change.after), change.seqnum
                for value in (change.before, change.after):
                    _spoil(value)
                self.notes.watched += 1

        while True:
            try:
                await cancels.call(changes, longest_s=SECONDS)
            except CallCancelled:
                pass


def _spoil(value: Any) -> None:
    """Change the value of a list's object in place."""
    if value is not None:
        value.get("l", []).append(STRAY)


async def when_taken(call: Callable[[], Awaitable[R]]) -> R:
    """Repeat a call for as long as it is refused with an error that is definite and retryable; return its result.

    Bookies whose disks were full take writes again a moment after the faults have ended; until then appends raise DiskFull, and
    nothing was sent. An error that leaves the outcome open is raised: the call must not happen twice.
    """
    while True:
        try:
            return await call()
        except BokiError as error:
            if not (error.definite and error.retryable):
                raise
        await asyncio.sleep(RETRY_S)


def cancellations(env: boki.sim.Environment) -> Cancellations:
    """Return the cancellations of calls of a host's start."""
    return Cancellations(env.random, one_in=_one_of(env.random, CANCELLED))


def _one_of(random: Random, choices: Any) -> Any:
    return choices[random.below(len(choices))]


async def _list(store: BokiStore, key: str) -> list[int]:
    value: Any = await store.object(key).get("l", [], consistency="linearizable")
    return list(value)


async def program(cluster: boki.sim.Cluster) -> None:
    """Run the store program under one seed."""
    await Shop(cluster).run()


STORE: Final = boki.sim.Subject(program, seconds=SECONDS, steady=True)
"""What the entry point names."""
