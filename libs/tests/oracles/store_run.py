"""The real `BokiStore` against a plain fold, by random seeds.

Several processes of one store with settings of their own (caches, followed objects, checkpoints, ages) run transactions together, change
objects blindly, delete, forget, collect and look, while days go by, answers are lost, followers lag, callers cancel calls in flight and
processes begin again with nothing in memory. Each transaction writes what it read first, so the log itself says what the body saw. In the
end the log is folded record by record by `Oracle`, which knows no checkpoint, no cache and no trim, and:

- what a committed transaction read is what the log had right before its record (transactions are serializable here);
- a transaction that returned is in the log once, one that was refused is not, and one that was cancelled or has no answer at most once;
- what a read-only transaction, a snapshot or `values` saw is one state of the log, at or after the place where it began;
- `value(at=place)` is the state at that place, or raises Trimmed, from every process;
- every process, and one that begins now, reads the last state: an object is never unreadable, missing or back again;
- nothing runs on of a transaction whose caller is gone.

    .venv/bin/python -m libs.tests.oracles.store_run --first 1 --seeds 3000
"""

from __future__ import annotations

import asyncio
import bisect
import random
import sys
from collections import Counter
from functools import partial
from typing import Any, Final, NamedTuple

from boki.testing import MemoryCluster
from boki_common.errors import Conflict, Trimmed
from boki_common.testing.machine import SeededRandom
from bokilib.errors import AppendUnknown, Fenced
from bokilib.records.codec import JsonObject
from bokilib.records.events import Envelope
from bokilib.retention.carrier import Carrier
from bokilib.testing import CallCancelled, Cancellations, all_ended
from bokistore import BokiStore, Inc, StoreSettings
from bokistore.commit.transactions import Transaction
from bokistore.errors import AlreadyExists, ResultUnknown, TransactionTimeout
from bokistore.model.events import PICKER, Commit, Deleted, Entry, Expires, Ops
from bokistore.model.fold import View, after_event
from libs.tests.oracles.rough_book import CALM, WEATHERS, RoughBook, Weather
from libs.tests.oracles.seeds import JumpingClock, Witness, main, running_tasks

BOOK: Final = "s"
CHANGED: Final = ("a", "b", "c")
IDS: Final = ("x", "y", "z")
OBJECTS: Final = (*CHANGED, *(f"user/{id}" for id in IDS))
LOGGED: Final = "log/"
HOUR_MS: Final = 3_600_000
STEPS_MS: Final = (10, 500, 1_500, 70_000)
CANCELLED: Final = (0, 3, 8)
"""A run cancels one of so many calls; 0: none."""


class State(NamedTuple):
    """The objects and ids as of a place."""

    objects: dict[str, JsonObject | None]
    ids: list[str]


class Seen(NamedTuple):
    """A read of several objects, and perhaps the ids: exactly as of `place`, if it has one, else at or after `begun`."""

    begun: int
    objects: dict[str, JsonObject | None]
    ids: list[str] | None = None
    place: int | None = None


class Plan(NamedTuple):
    """The reads and writes of a transaction."""

    reads: tuple[str, ...]
    scans: bool
    writes: tuple[tuple[str, str], ...]
    value: int
    slow: bool
    fails: bool

    @staticmethod
    def draw(chances: random.Random) -> Plan:
        hot = chances.random() < 0.3  # everybody changes one object
        names = CHANGED[:1] if hot else CHANGED
        writes = [
            (chances.choice(("inc", "inc", "set", "send", "delete")), chances.choice(names))
            for _ in range(chances.randrange(0, 3))
        ]
        if chances.random() < 0.2:
            writes.append((chances.choice(("enter", "leave")), chances.choice(IDS)))
        return Plan(
            tuple(chances.choice(OBJECTS) for _ in range(chances.randrange(0, 3))),
            chances.random() < 0.25,
            tuple(writes),
            chances.randrange(100),
            chances.random() < 0.5,
            chances.random() < 0.05,
        )


class Outcome(NamedTuple):
    """How often a transaction is in the log at least and at most, as its caller knows, and the error that it got."""

    least: int
    most: int
    error: str = ""


class FailsByChance(Exception):
    """Raised by a body: nothing was committed."""


EXPECTED: Final = (
    FailsByChance,
    Conflict,
    Trimmed,
    AppendUnknown,
    AlreadyExists,
    Fenced,
    TransactionTimeout,
    CallCancelled,
)
"""Errors that callers may get under these faults; the log is checked after them all the same."""


class Oracle:
    """The log, folded record by record by the plainest code there is. `history`: the state after each record."""

    def __init__(self, records: dict[int, tuple[int, Envelope]]) -> None:
        self.places: Final[list[int]] = [0]
        self.history: Final[list[State]] = [State(dict.fromkeys(OBJECTS), [])]
        self.commits = 0
        self.committed: Final[Counter[str]] = Counter()
        """How often the log has each transaction that writes, by name."""
        self._views = {name: View(name) for name in OBJECTS}
        self._ids: set[str] = set()
        for seqnum, (_, envelope) in sorted(records.items()):
            self._take(seqnum, envelope)
            values = {name: view.value if view.exists else None for name, view in self._views.items()}
            self.places.append(seqnum)
            self.history.append(State(values, sorted(self._ids)))

    @property
    def last(self) -> State:
        return self.history[-1]

    def at(self, place: int) -> State:
        """Return the state as of a place."""
        return self.history[bisect.bisect_right(self.places, place) - 1]

    def _take(self, seqnum: int, envelope: Envelope) -> None:
        for event in PICKER.of(seqnum, envelope):
            if isinstance(event, Commit) and event.name.startswith(LOGGED):
                if event.operations:  # else it is a claim
                    self._check_reads(seqnum, event)
            elif isinstance(event, Entry) and event.collection == "user":
                (self._ids.add if event.there else self._ids.discard)(event.id)
            elif isinstance(event, (Ops, Commit, Deleted, Expires)) and event.name in self._views:
                self._views[event.name] = after_event(self._views[event.name], event)

    def _check_reads(self, seqnum: int, event: Commit) -> None:
        """Several transactions may be one record: the state is that in the middle of it, after those before this one."""
        self.commits += 1
        self.committed[event.name] += 1
        said: Any = event.operations[0].value  # type: ignore[union-attr]
        for name, found in said["reads"].items():
            view = self._views[name]
            wanted = view.value if view.exists else None
            assert found == wanted, f"record {seqnum}: {event.name} read {name} as {found}, the log has {wanted}"
        if said["ids"] is not None:
            assert said["ids"] == sorted(self._ids), (
                f"record {seqnum}: {event.name} scanned {said['ids']}, the log has {sorted(self._ids)}"
            )

    def check_outcomes(self, outcomes: dict[str, Outcome]) -> None:
        """Assert that what callers learned of their transactions is true, and that none is in the log twice."""
        for name, outcome in outcomes.items():
            found = self.committed[name]
            assert outcome.least <= found <= outcome.most, (
                f"{name} is in the log {found} times: {outcome.error or 'it returned'}"
            )

    def check(self, seen: Seen) -> None:
        """Assert that a read returned a state of the log that it may return."""
        if seen.place is not None:
            candidates = [self.at(seen.place)]
        else:
            candidates = self.history[bisect.bisect_right(self.places, seen.begun) - 1 :]
        for state in candidates:
            same = all(state.objects[name] == value for name, value in seen.objects.items())
            if same and (seen.ids is None or seen.ids == state.ids):
                return
        place = f"as of {seen.place}" if seen.place is not None else f"at or after {seen.begun}"
        expected = f"; the log has {candidates[0]}" if len(candidates) == 1 else ""
        raise AssertionError(f"read {seen.objects}, ids {seen.ids}: no state of the log {place}{expected}")


class World:
    """A run of one seed."""

    def __init__(self, cluster: MemoryCluster, clock: JumpingClock, seed: int) -> None:
        self.chances: Final = random.Random(seed)
        self.seen: Final[list[Seen]] = []
        self.counted: Counter[str] = Counter()
        self.outcomes: Final[dict[str, Outcome]] = {}
        """Outcomes of the transactions that write, by name."""
        self.stores: Final[list[BokiStore]] = []
        self._cluster: Final = cluster
        self._clock: Final = clock
        self._number = 0
        self._grace_ms = self.chances.choice((60_000, 1_000))
        self._retention_ms = self.chances.choice((70_000, HOUR_MS, 7 * 24 * HOUR_MS))
        self._forget_ms = self.chances.choice((0, 90_000, 24 * HOUR_MS))
        self._weather = self.chances.choice(WEATHERS)
        cancelling = random.Random(f"{seed} cancels")
        self._cancels: Final = Cancellations(
            SeededRandom(cancelling.randrange(1 << 30)), one_in=cancelling.choice(CANCELLED)
        )

    async def process(self, weather: Weather | None = None) -> BokiStore:
        """A process with nothing in memory, and settings of its own but for the ages, which all of a store share."""
        chances = self.chances
        settings = StoreSettings(
            checkpoint_records=chances.choice((3, 5, 1_000)),
            grace_ms=self._grace_ms,
            retention_ms=self._retention_ms,
            forget_ms=self._forget_ms,
            followed_objects=chances.choice((0, 0, 10)),
            cached_views=chances.choice((0, 2, 100)),
            aux_data=chances.random() < 0.7,
        )
        book = (await self._cluster.connect()).book(BOOK)
        rough = RoughBook(book, random.Random(chances.random()), self._weather if weather is None else weather)
        return BokiStore(rough, settings=settings, random=SeededRandom(chances.randrange(1 << 30)))

    # -- a worker

    async def work(self, number: int) -> None:
        """Do random operations with one of the processes."""
        chances = self.chances
        for _ in range(chances.randrange(4, 14)):
            place = number % len(self.stores)
            if chances.random() < 0.06:  # the process ends, and begins again with nothing in memory
                self.stores[place] = await self.process()
            before_ms = self._clock.now_ms()
            try:
                await self._cancels.call(partial(self._once, self.stores[place]))
                if chances.random() < 0.06:
                    await self._days()
            except EXPECTED as error:
                self.counted[type(error).__name__] += 1
            except ResultUnknown:
                if self._clock.now_ms() - before_ms < self._grace_ms:
                    raise  # what was before the operation may be trimmed once it is older than the grace, and no sooner
                self.counted["ResultUnknown"] += 1
            if chances.random() < 0.3:
                self._clock.ahead_ms += chances.choice(STEPS_MS) if chances.random() < 0.6 else 0
            for _ in range(chances.randrange(3)):
                await asyncio.sleep(chances.choice((0, 0, 0, 0.01)))

    async def _once(self, store: BokiStore) -> None:
        chances = self.chances
        users = store.collection("user", dict[str, int])
        drawn = chances.random()
        if drawn < 0.5:
            await self._transact(store)
        elif drawn < 0.58:
            id = chances.choice(IDS)
            await (users.put(id, {"v": chances.randrange(9)}) if chances.random() < 0.6 else users.delete(id))
        elif drawn < 0.66:
            await store.object(chances.choice(CHANGED)).inc("n")
        elif drawn < 0.72:
            await store.delete(chances.choice(CHANGED))
        elif drawn < 0.82:
            await store.tend(chances.choice(OBJECTS))
        elif drawn < 0.88:
            await self._snapshot(store)
        elif drawn < 0.94:
            await self._past(store)
        else:
            names = chances.sample(OBJECTS, 3)
            begun = store.log.book.position or 0
            values = await store.values(names)
            self.seen.append(Seen(begun, dict(zip(names, values, strict=True))))

    async def _transact(self, store: BokiStore) -> None:
        chances, plan = self.chances, Plan.draw(self.chances)
        self._number += 1
        name = f"{LOGGED}{self._number}"
        readonly = chances.random() < 0.2
        begun = store.log.book.position or 0

        async def body(tx: Transaction) -> Seen:
            reads: dict[str, JsonObject | None] = {}
            for one in plan.reads:
                reads[one] = await tx[one].value()
                if plan.slow:
                    await asyncio.sleep(0)
            ids = await tx.ids("user") if plan.scans else None
            if not readonly:
                tx[name].set("", {"reads": dict(reads), "ids": list(ids) if ids is not None else None})
                self._write(tx, plan)
            if plan.fails:
                raise FailsByChance
            return Seen(begun, reads, ids)

        if readonly:
            self.seen.append(await store.transact(body))
            return
        self.outcomes[name] = Outcome(0, 1, "its outcome is unknown")
        try:
            await store.transact(body)
        except (Conflict, FailsByChance, TransactionTimeout) as error:
            self.outcomes[name] = Outcome(0, 0, repr(error))
            raise
        self.outcomes[name] = Outcome(1, 1)

    def _write(self, tx: Transaction, plan: Plan) -> None:
        for kind, target in plan.writes:
            if kind == "inc":
                tx[target].inc("n")
            elif kind == "set":
                tx[target].set("n", plan.value)
            elif kind == "send":
                tx.send(target, Inc("s", 1))
            elif kind == "delete":
                tx.delete(target)
            else:
                tx.enter("user", target, there=kind == "enter")

    async def _snapshot(self, store: BokiStore) -> None:
        chances = self.chances
        begun = store.log.book.position or 0
        async with store.snapshot(of=chances.sample(OBJECTS, chances.randrange(0, 3))) as snapshot:
            objects = {name: await snapshot.value(name) for name in chances.sample(OBJECTS, 2)}
            ids = await snapshot.ids("user") if chances.random() < 0.5 else None
        self.seen.append(Seen(begun, objects, ids))

    async def _past(self, store: BokiStore) -> None:
        """Read one object as of a place, by this process or a new one."""
        now = await store.log.book.now()
        place = max(1, now - self.chances.choice((0, 1, 5, 30)))
        if self.chances.random() < 0.3:
            store = await self.process()
            await store.log.book.now()
        name = self.chances.choice(OBJECTS)
        self.seen.append(Seen(0, {name: await store.object(name).value(at=place)}, place=place))

    async def _days(self) -> None:
        """Let enough time pass for deletions to be forgotten; then run the upkeep."""
        self._clock.ahead_ms += self.chances.choice((HOUR_MS + 400_000, 25 * HOUR_MS, 8 * 24 * HOUR_MS))
        self.counted["times that days went by"] += 1
        store = await self.process(CALM)
        if self.chances.random() < 0.5:
            carrier = Carrier(
                store.log, [store.carried()], who="c", carry_ms=self.chances.choice((HOUR_MS, 24 * HOUR_MS))
            )
            await carrier.round()
        else:
            for name in OBJECTS:
                await store.tend(name)

    # -- the end

    async def finals(self) -> list[Seen]:
        """Read the whole state by each process and by a new one, after a linearizable read of the end of the log."""
        found = []
        for store in [*self.stores, await self.process(CALM)]:
            values = await store.values(OBJECTS, consistency="linearizable")
            ids = await store.collection("user", dict).ids(consistency="linearizable")
            found.append(Seen(0, dict(zip(OBJECTS, values, strict=True)), ids))
        return found


async def run(seed: int) -> Counter[str]:
    """Run one seed: the work, then the comparison with the log."""
    clock = JumpingClock()
    async with MemoryCluster(clock=clock) as cluster:
        world = World(cluster, clock, seed)
        chances = world.chances
        witness = Witness((await cluster.connect()).book(BOOK))
        async with witness:
            for _ in range(chances.choice((2, 3))):
                world.stores.append(await world.process())
            if chances.random() < 0.6:
                await (await world.process(CALM)).object("first").set("x", 1)  # else the book is new, and has no record
            await asyncio.gather(*(world.work(number) for number in range(5)))
            await all_ended(running_tasks, "bokistore transaction", "bokistore claim")
            finals = await world.finals()
            await witness.caught_up()
        oracle = Oracle(witness.records)
    oracle.check_outcomes(world.outcomes)
    for seen in world.seen:
        oracle.check(seen)
    for number, final in enumerate(finals):
        assert (final.objects, final.ids) == oracle.last, (
            f"process {number} of {len(finals)} reads {final.objects} {final.ids} in the end, the log has {oracle.last}"
        )
    world.counted.update({"commits": oracle.commits, "records": len(witness.records), "reads": len(world.seen)})
    return world.counted


if __name__ == "__main__":
    sys.exit(main(run))
