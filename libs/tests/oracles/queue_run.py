"""The real `bokiqueue` against what must become of each message, by random seeds.

A producer pushes under keys, deduplication ids, delays and priorities; members of groups handle, each in a process of its own that is
drained, ends cleanly, is killed, or is stopped for longer than its lease and lives on; callers cancel pushes, iteration, decisions, records
with ACKs, drains and whole members while they are in flight; answers are late or lost, followers lag, days go
by, a carrier carries. A handler's effect and its ACK are one record; some records end two messages, of two shards. One group is dropped
and registered again by two processes at once. Another is purged again and again, before it has a member and after its first ones came.
What happened is read from the log by `Witness` as it grows; the oracle knows no owner, lease or checkpoint:

- each message that is no copy has one effect in each group that was there all the time, each copy none, also a copy of a message that
  was purged; of messages that are purged this is the most;
- a push that was cancelled is in the log once or not at all, and so is each repetition under its deduplication id;
- a push says that its message is a copy only if it is, or that this is not known;
- effects of one key come in the order of its pushes;
- the group that comes and goes handles nothing twice, and all that was pushed since it was registered last;
- no more attempts of a message failed than handlers raised or gave it back, or processes ended with it that were not drained and did not
  leave; in calm weather, since rough weather takes living members for dead;
- each NACK in the log fails an attempt, and so does a block that exits;
- what users change in place after they gave or read it changes nothing, and no reason is taken that no record may have;
- nothing waits in the end; of a queue with dead letters each message is handled or a dead letter, never both, and of a dead letter as many
  attempts failed as the queue allows: handlers raised or gave it back, or a member was lost with it alone (`queue_deaths`);
- no task of a member runs on when all have ended.

    .venv/bin/python -m libs.tests.oracles.queue_run --first 1 --seeds 3000
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import bokiqueue
from boki.testing import MemoryCluster
from boki_common.errors import BokiError, Conflict, InvalidArgument
from boki_common.testing.machine import SeededRandom
from bokilib import Carrier
from bokilib.errors import AppendUnknown, Fenced
from bokilib.testing import CallCancelled, Cancellations, Died, all_ended
from bokiqueue import Consumer, Message, Queue
from bokiqueue.checkpoint import checkpointing
from bokiqueue.errors import NoSuchGroup, StaleReceipt
from bokiqueue.model import delivery_rules
from bokiqueue.model.events import PICKER as EVENTS
from bokiqueue.model.events import Config, Id, Pushed
from bokiqueue.model.items import body_of
from bokiqueue.shard import arrivals
from bokiqueue.sharding import shard_of
from bokistore import BokiStore
from bokistore.commit.transactions import Transaction
from bokistore.errors import TransactionTimeout
from bokistore.model.events import PICKER, Commit
from libs.tests.oracles.queue_deaths import Deaths
from libs.tests.oracles.rough_book import CALM, STOPPED_S, WEATHERS, RoughBook
from libs.tests.oracles.seeds import JumpingClock, Witness, constants, main, running_tasks

BOOK: Final = "b"
QUEUE: Final = "q"
DEAD: Final = "q.dead"
DEFAULT: Final = "default"
OFTEN: Final = "audit"
"""The group that is dropped and registered again."""
LATE: Final = "late"
"""The group that is purged. Its members come late."""
KEYS: Final = ("a", "b", "c")
LEASE_S: Final = 30.0
HOUR_S: Final = 3_600
STRAY: Final = -1
"""What bodies are changed to in place, after they were given or read."""
ODD: Final = 0.03
EXITING: Final = 7
"""In one of two runs a message of so many exits in its first block."""
EXITS: Final = 20
"""Blocks of one message that exit at its first attempt: more, and none of them counts as failed."""
CANCELLED: Final = (0, 3, 8)
"""A run cancels one of so many calls; 0: none."""
LIVES: Final = (0, 2, 6)
"""A run cancels one of so many members, at any point of their lives; 0: none."""
SETTLE_S: Final = 20_000.0
"""Longest virtual time in which everything is handled once nothing is pushed any more."""

Body = dict[str, int]


class Push(NamedTuple):
    """A message that was acknowledged, or whose push was cancelled: `seqnum` is 0 until the log is read. `duplicate`: as its push said."""

    number: int
    key: str | None
    dedup: str | None
    seqnum: int
    duplicate: bool | None


class Shape(NamedTuple):
    """What a seed's queue is like."""

    shards: int
    groups: tuple[str, ...]
    messages: int
    dedup_s: float
    max_deliveries: int | None
    comes_and_goes: bool
    purged: bool

    @staticmethod
    def draw(chances: random.Random, purging: random.Random) -> Shape:
        return Shape(
            shards=chances.choice((1, 2, 3, 6)),
            groups=(DEFAULT, "g2") if chances.random() < 0.3 else (DEFAULT,),
            messages=chances.choice((15, 30, 60)),
            dedup_s=chances.choice((5, 300, 100_000)),
            max_deliveries=chances.choice((None, None, 1, 4)),
            comes_and_goes=chances.random() < 0.3,
            purged=purging.random() < 0.5,
        )


class HandlerFails(Exception):
    """Raised by a handler by chance."""


def on_their_way(consumer: Consumer[Body]) -> set[int]:
    """Messages that a member has delivered: those that a handler has, those that wait for one, and those whose decision is appended."""
    schedules = [owner._schedule for owner in consumer._owners.values() if owner._schedule is not None]
    bodies: list[Any] = [body_of(object, one.entries[id].item) for one in schedules for id in one.flights]
    return {body["n"] for body in bodies}


class Process:
    """A process of the run: a session of its own. `ends` is awaited by what lives in it."""

    def __init__(self, store: BokiStore, queue: Queue[Body], book: RoughBook) -> None:
        self.store: Final = store
        self.queue: Final = queue
        self.book: Final = book


class World:
    """One seed."""

    def __init__(self, cluster: MemoryCluster, clock: JumpingClock, seed: int) -> None:
        self.chances: Final = random.Random(seed)
        self.purging: Final = random.Random(f"{seed} purges")
        """Chances of the group that is purged. A seed without it draws nothing from them later."""
        self.shape: Final = Shape.draw(self.chances, self.purging)
        self.pushed: Final[list[Push]] = []
        self.counted: Counter[str] = Counter()
        self.registered_at = 0
        """Place at which the group that comes and goes was certainly there for good; 0: it is not."""
        self.burdens: Final[Counter[tuple[str, int]]] = Counter()
        """(group, message) → handlers that raised, or whose process died or stood still."""
        self.failed: Final[Counter[tuple[str, int]]] = Counter()
        """(group, message) → handlers that raised or gave it back."""
        self.certain: Final[Counter[tuple[str, tuple[int, ...]]]] = Counter()
        """(group, id of a message) → attempts that failed by the log."""
        self.exits: Final[Counter[tuple[str, int]]] = Counter()
        """(group, message) → blocks that exited at the first attempt."""
        self.odd: Final = random.Random(f"{seed} odd")
        """Chances of odd code of users."""
        self.exiting: Final = self.odd.random() < 0.5
        self.stop: Final = asyncio.Event()
        cancelling = random.Random(f"{seed} cancels")
        numbers = SeededRandom(cancelling.randrange(1 << 30))
        self.cancels: Final = Cancellations(numbers, one_in=cancelling.choice(CANCELLED))
        self.lives: Final = Cancellations(numbers, one_in=cancelling.choice(LIVES))
        self._cluster: Final = cluster
        self._clock: Final = clock
        self._weather = self.chances.choice(WEATHERS)

    async def process(self, *, calm: bool = False) -> Process:
        chances, shape = self.chances, self.shape
        weather = CALM if calm else self._weather
        book = RoughBook((await self._cluster.connect()).book(BOOK), random.Random(chances.random()), weather)
        tokens = SeededRandom(chances.randrange(1 << 30))
        store = BokiStore(book, random=tokens)
        queue = await Queue.open(
            store.log,
            QUEUE,
            Body,
            shards=shape.shards,
            max_deliveries=shape.max_deliveries,
            dead_letter=DEAD if shape.max_deliveries else None,
            dedup_s=shape.dedup_s,
            random=tokens,
        )
        return Process(store, queue, book)

    async def soon(self, *seconds: float) -> None:
        """Wait for one of these times, or until the run is to stop."""
        try:
            async with asyncio.timeout(self.chances.choice(seconds)):
                await self.stop.wait()
        except TimeoutError:
            pass

    # -- producers

    async def produce(self) -> None:
        chances = self.chances
        process = await self.process(calm=True)
        if len(self.shape.groups) > 1:
            await process.queue.register(self.shape.groups[1])
        for number in range(self.shape.messages):
            key = chances.choice((None, None, *KEYS))
            dedup = chances.choice((None, None, None, f"d{chances.randrange(8)}"))
            delay_s = chances.choice((0, 0, 0, 3, 30)) if key is None else 0
            push = partial(
                process.queue.push, key=key, dedup_id=dedup, delay_s=delay_s, priority=chances.choice((0, 0, 0, 5))
            )
            while True:
                body = {"n": number}
                try:
                    seqnum = await self.cancels.call(partial(push, body))
                    body["n"] = STRAY
                except CallCancelled:
                    self.pushed.append(Push(number, key, dedup, 0, None))
                    if dedup is None:
                        break
                    continue
                self.pushed.append(Push(number, key, dedup, seqnum, seqnum.duplicate))
                break
            if chances.random() < 0.3:
                await asyncio.sleep(chances.choice((0.1, 3, 8)))
            if chances.random() < 0.03:
                self._clock.ahead_ms += 1_000 * chances.choice((HOUR_S, 13 * HOUR_S, 25 * HOUR_S))

    # -- members

    async def member(self, name: str, group: str) -> None:
        """Lives of one member, one after the other, each in a process of its own."""
        chances = self.chances
        while not self.stop.is_set():
            try:
                process = await self.process()
                await self._life(process, group, name if chances.random() < 0.5 else None)
            except (Died, NoSuchGroup):
                pass
            except BokiError as error:
                if not error.retryable and not isinstance(error, (Fenced, Conflict)):
                    raise
                self.counted[f"members ended by {type(error).__name__}"] += 1
            await asyncio.sleep(chances.random() * 5)

    async def _life(self, process: Process, group: str, who: str | None) -> None:
        """Live as a member that ends by itself or is killed, drained, cancelled or left."""
        chances, book = self.chances, process.book
        member = Member(self, process, group, who)
        living = asyncio.get_running_loop().create_task(self.lives.call(member.consume, longest_s=200.0))
        watching: list[asyncio.Task[None]] = []
        try:
            for _ in range(chances.choice((1, 1, 3))):
                await asyncio.wait([living], timeout=chances.choice((5, 30, 200)))
                if living.done() or self.stop.is_set():
                    break
                if chances.random() < 0.3:
                    book.stop(chances.choice(STOPPED_S))
                    watching.append(asyncio.get_running_loop().create_task(member.silent()))
            ends = chances.random()
            if ends < 0.5 and not living.done():
                book.die()
            elif ends < 0.8 and not living.done() and not self.stop.is_set():
                try:
                    await self.cancels.call(partial(member.consumer.drain, finish_s=chances.choice((0, 60))))
                except CallCancelled:
                    self.counted["cancelled drains"] += 1
        finally:
            member.ending = True
            if book.dead:
                member.burden()
            tasks = [living, *member.handling, *watching]
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, CallCancelled):
                self.counted["cancelled members"] += 1
            elif error is not None and not isinstance(error, (Died, asyncio.CancelledError)):
                assert isinstance(error, BaseException)
                raise error

    def check_attempt(self, group: str, message: Message[Body]) -> None:
        """Check that each attempt counts as failed that certainly failed, and in calm weather none that did not. Spoil its body."""
        failed = self.burdens[group, message.body["n"]]
        certain = self.certain[group, message.id] if group in self.shape.groups else 0
        assert message.attempt > certain, (
            f"{group}: attempt {message.attempt} of {message.id}, of which {certain} failed"
        )
        body = message.body
        body["n"] = STRAY
        assert self._weather is not CALM or message.attempt <= 1 + failed, (
            f"{group}: attempt {message.attempt} of message {message.body['n']}, of which {failed} failed"
        )

    def fails(self, group: str, message: Message[Body]) -> None:
        """Count a handler that raises or gives its message back."""
        self.burdens[group, message.body["n"]] += 1
        self.failed[group, message.body["n"]] += 1

    async def handle(self, process: Process, group: str, messages: list[Message[Body]]) -> None:
        chances = self.chances
        drawn = chances.random()
        try:
            if self.odd.random() < ODD:
                self._give_up_for_no_reason(messages[0])
            if self.exiting and messages[0].body["n"] % EXITING == 0 and messages[0].attempt == 1:
                await self._exit(group, messages[0])
                messages = messages[1:]
            if not messages:
                return
            if drawn < 0.12:
                for message in messages:
                    self.fails(group, message)
                    nack = partial(message.nack, chances.choice((0, 0, 1, 20)))
                    if chances.random() < 0.5:
                        await self.cancels.call(nack)
                        self.certain[group, message.id] += 1
                    else:
                        _ = nack()
                return
            if drawn < 0.18:
                await asyncio.sleep(chances.choice((1, 40)))  # perhaps longer than its lease
            handle = partial(self._handle_together, process, group, messages, fails=drawn > 0.9)
            await self.cancels.call(handle)
        except (HandlerFails, StaleReceipt, Fenced, Conflict, TransactionTimeout):
            pass
        except AppendUnknown:
            self.counted["unknown outcomes"] += 1
        except CallCancelled:
            self.counted["cancelled handlers"] += 1

    def _give_up_for_no_reason(self, message: Message[Body]) -> None:
        """Give a message up for a reason that no record may have: that is refused, and the handler has it still."""
        reason: Any = self.odd.choice((b"x", None, ["a"], "\ud800"))
        try:
            _ = message.give_up(reason)
        except InvalidArgument:
            return
        raise AssertionError(f"the reason {reason!r} was taken")

    async def _exit(self, group: str, message: Message[Body]) -> None:
        """Exit in the block of a message: its attempt fails."""
        self.fails(group, message)
        self.exits[group, message.body["n"]] += 1
        exits = self.exits[group, message.body["n"]]
        assert exits <= EXITS, f"{group}: {exits} blocks of message {message.body['n']} exited at its first attempt"
        try:
            async with message:
                raise SystemExit
        except SystemExit:
            pass

    async def _handle_together(
        self, process: Process, group: str, messages: list[Message[Body]], *, fails: bool
    ) -> None:
        """The effects and ACKs of the messages in one record, as `Queue.handler` does it for one."""
        if len(messages) > 1:
            async with messages[1]:
                await self._effects(process, group, messages, fails=fails)
        else:
            await self._effects(process, group, messages, fails=fails)

    async def _effects(self, process: Process, group: str, messages: list[Message[Body]], *, fails: bool) -> None:
        chances = self.chances

        async def body(tx: Transaction) -> None:
            if chances.random() < 0.2:
                tx["hot"].set("n", await tx["hot"].get("n", 0))  # loses to whoever does the same
            for message in messages:
                tx[f"done/{group}/{message.body['n']}"].inc("n")
            if chances.random() < 0.3:
                await asyncio.sleep(chances.random())
            for message in messages:
                tx.add(message.acked())

        async with messages[0]:
            if fails:
                for message in messages:
                    self.fails(group, message)
                raise HandlerFails
            if chances.random() < 0.5:
                await process.store.transact(body)
            else:
                async with process.store.transaction() as tx:
                    await body(tx)

    # -- beside them

    async def carry(self) -> None:
        process = await self.process()
        while not self.stop.is_set():
            await self.soon(7, 50)
            libraries = [bokiqueue.carried(process.store.log), process.store.carried()]
            carry_ms = self.chances.choice((86_400_000, 60_000))
            try:
                await Carrier(process.store.log, libraries, who="c", carry_ms=carry_ms).round()
            except (Fenced, AppendUnknown, Conflict):
                self.counted["rounds of the carrier that ended early"] += 1

    async def cut(self) -> None:
        """All connections break now and then."""
        while not self.stop.is_set():
            await self.soon(11, 60)
            if self.chances.random() < 0.5:
                self._cluster.disconnect()

    async def come_and_go(self, until: asyncio.Event) -> None:
        """One of two processes that drop the group and register it again, at once; the last word is that it is there."""
        process = await self.process()
        while not until.is_set():
            await asyncio.sleep(self.chances.choice((0.2, 3, 15)))
            try:
                change = process.queue.drop if self.chances.random() < 0.5 else process.queue.register
                await self.cancels.call(partial(change, OFTEN))
            except (NoSuchGroup, AppendUnknown, CallCancelled):
                pass

    async def purge(self, pushing: asyncio.Task[None]) -> None:
        """Purge a group while messages are pushed; its members come at some time."""
        process = await self.process()
        comes_after, purges = self.purging.choice((0, 1, 3, 8)), 0
        members: list[asyncio.Task[None]] = []
        try:
            while not self.stop.is_set():
                await asyncio.wait([pushing, *members], timeout=self.purging.choice((0.3, 5, 20)))
                for task in members:
                    if task.done():
                        task.result()
                if not pushing.done():
                    try:
                        await self.cancels.call(partial(process.queue.purge, LATE))
                        self.counted["purges"] += 1
                    except (AppendUnknown, CallCancelled):
                        pass
                    purges += 1
                if not members and (pushing.done() or purges > comes_after):
                    members = [
                        asyncio.get_running_loop().create_task(self.member(f"{LATE}{place}", LATE))
                        for place in range(self.purging.choice((1, 2)))
                    ]
                if pushing.done():
                    await asyncio.wait([*members, asyncio.get_running_loop().create_task(self.stop.wait())])
        finally:
            for task in members:
                task.cancel()
            await asyncio.gather(*members, return_exceptions=True)

    async def settled(self) -> dict[str, int]:
        """Wait until nothing waits; return how much does at the end of the longest time."""
        process = await self.process(calm=True)
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        groups = [*self.shape.groups, *([OFTEN] if self.registered_at else []), *([LATE] if self.shape.purged else [])]
        while True:
            depths = {group: (await process.queue.stats(group)).depth for group in groups}
            if not any(depths.values()) or asyncio.get_running_loop().time() > deadline:
                return {group: depth for group, depth in depths.items() if depth}
            await asyncio.sleep(20)

    async def run(self) -> None:
        """Everybody works; then everything is handled."""
        chances, shape = self.chances, self.shape
        loop = asyncio.get_running_loop()
        first = await self.process(calm=True)
        if chances.random() < 0.7:
            await first.store.object("first").set("x", 1)
        groups = [*shape.groups, *(chances.choice(shape.groups) for _ in range(chances.choice((0, 1, 2))))]
        groups += [OFTEN, OFTEN] if shape.comes_and_goes else []
        works: list[Callable[[], Awaitable[None]]] = [self.carry, self.cut]
        if shape.purged:
            await first.queue.register(LATE)
        pushing = loop.create_task(self.produce())
        tasks = [loop.create_task(self.member(f"m{place}", group)) for place, group in enumerate(groups)]
        tasks += [loop.create_task(self._forever(work)) for work in works]
        tasks += [loop.create_task(self.purge(pushing))] if shape.purged else []
        try:
            if shape.comes_and_goes:
                over = asyncio.Event()
                churning = [loop.create_task(self.come_and_go(over)) for _ in range(2)]
                await asyncio.wait(
                    [pushing, *tasks, loop.create_task(asyncio.sleep(60))], return_when="FIRST_COMPLETED"
                )
                over.set()
                await asyncio.gather(*churning)
                process = await self.process(calm=True)
                await process.queue.register(OFTEN)
                self.registered_at = await process.store.log.book.now(consistency="linearizable")
            done, _ = await asyncio.wait([pushing, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            waits = loop.create_task(self.settled())
            await asyncio.wait([waits, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            left = await waits
            assert not left, f"messages that wait for ever, by group: {left}"
        finally:
            self.stop.set()
            for task in [pushing, *tasks]:
                task.cancel()
            await asyncio.gather(pushing, *tasks, return_exceptions=True)
        await all_ended(running_tasks, "bokiqueue", "bokilib members", "bokilib follower")

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await work()
            await self.stop.wait()


class Member:
    """One life of a member of a group. `ending`: it is stopped because its life is to end."""

    def __init__(self, world: World, process: Process, group: str, who: str | None) -> None:
        chances = world.chances
        self.handling: Final[dict[asyncio.Task[None], list[Message[Body]]]] = {}
        self.ending = False
        self.consumer: Final = process.queue.consume(
            group=group,
            who=who,
            prefetch=chances.choice((1, 4, 64)),
            lease_s=LEASE_S,
            member_lease_s=chances.choice((3, 15)),
            carry_s=chances.choice((86_400, 40)),
        )
        self._world: Final = world
        self._process: Final = process
        self._group: Final = group
        self._first: Message[Body] | None = None

    def burden(self) -> None:
        """Count a burden of each message that the member has."""
        self._world.burdens.update((self._group, number) for number in self._held())

    async def silent(self) -> None:
        """Count a burden of each message that the member has while it is silent: others may take it for dead."""
        book, counted = self._process.book, set[int]()
        while book.stopped and not book.dead:
            now = self._held()
            self._world.burdens.update((self._group, number) for number in now - counted)
            counted |= now
            await asyncio.sleep(0.1)

    async def consume(self) -> None:
        """Be a member until the consumer is drained."""
        async with self.consumer:
            try:
                await self._take()
            except asyncio.CancelledError:  # it may be cut off while it leaves: then others take it for dead
                if not self.ending:
                    self.burden()
                raise

    async def _take(self) -> None:
        """Handle messages, up to six at once."""
        world = self._world
        while True:
            try:
                message = await world.cancels.call(partial(anext, self.consumer))
            except CallCancelled:
                continue
            except StopAsyncIteration:
                return
            world.check_attempt(self._group, message)
            if self._first is None and world.chances.random() < 0.15:
                self._first = message  # one record ends it and the next one, perhaps of another shard
                continue
            both = [message] if self._first is None else [self._first, message]
            self._first = None
            task = asyncio.get_running_loop().create_task(world.handle(self._process, self._group, both))
            self.handling[task] = both
            task.add_done_callback(self.handling.pop)
            while len(self.handling) >= 6:
                await asyncio.wait(self.handling, return_when=asyncio.FIRST_COMPLETED)

    def _held(self) -> set[int]:
        messages = [message for both in self.handling.values() for message in both]
        messages += [self._first] if self._first else []
        return {message.body["n"] for message in messages} | on_their_way(self.consumer)


class Oracle:
    """What the log says became of each message. `effects`: (group, message) → how often; `order`: by group, as they came."""

    def __init__(self, witness: Witness, shards: int) -> None:
        self.effects: Final[Counter[tuple[str, int]]] = Counter()
        self.order: Final[defaultdict[str, list[int]]] = defaultdict(list)
        self.dead: Final[Counter[int]] = Counter()
        self.records: Final[defaultdict[int, list[int]]] = defaultdict(list)
        """Message → places of the records that pushed it."""
        self.attempts: Final[dict[int, int]] = {}
        self.often_since = 0
        """Place at which the group that comes and goes was registered last."""
        self.purged_below = 0
        """Place below which messages were purged for the group that is purged."""
        self.times: Final = {seqnum: time_ms for seqnum, (time_ms, _) in witness.records.items()}
        self.numbers: Final[dict[Id, int]] = {}
        """Message → its number, by its id."""
        self.deaths: Final = Deaths(QUEUE, shards)
        for seqnum, (time_ms, envelope) in sorted(witness.records.items()):
            self.deaths.apply(seqnum, time_ms, envelope)
            for event in PICKER.of(seqnum, envelope):
                if isinstance(event, Commit) and event.name.startswith("done/"):
                    _, group, number = event.name.split("/")
                    self.effects[group, int(number)] += 1
                    self.order[group].append(int(number))
            for pushed in EVENTS.of(seqnum, envelope):
                if isinstance(pushed, Config) and pushed.queue == QUEUE:
                    self.often_since = pushed.groups.get(OFTEN, 0)
                    self.purged_below = pushed.groups.get(LATE, 0)
                if isinstance(pushed, Pushed):
                    for place, item in enumerate(pushed.items):
                        body: Any = body_of(object, item)
                        if pushed.id.startswith(f"{DEAD}/"):
                            self.dead[body["n"]] += 1
                        else:
                            self.records[body["n"]].append(seqnum)
                            self.numbers[Id(seqnum, place)] = body["n"]

    def placed(self, pushed: list[Push]) -> list[Push]:
        """The pushes that are in the log, those that were cancelled with their places."""
        left = {number: list(places) for number, places in self.records.items()}
        for one in pushed:
            if one.seqnum:
                left[one.number].remove(one.seqnum)
        found = []
        for one in pushed:
            if one.seqnum:
                found.append(one)
            elif left.get(one.number):
                found.append(one._replace(seqnum=left[one.number].pop(0)))
        twice = {number: places for number, places in left.items() if places}
        assert not twice, f"messages are in the log more often than they were pushed: {twice}"
        return found

    def counting(self, pushed: list[Push], shape: Shape) -> list[Push]:
        """The messages that are no copy of one that came within the window before them, in the order of the log."""
        found, first = [], dict[object, int]()
        for one in sorted(pushed, key=lambda push: push.seqnum):
            if one.dedup is not None:
                name = (shard_of(shape.shards, one.key, one.dedup), one.dedup)
                if name in first and self.times[one.seqnum] - first[name] <= shape.dedup_s * 1_000:
                    continue
                first[name] = self.times[one.seqnum]
            found.append(one)
        return found

    def check(self, world: World) -> None:
        """Raises AssertionError."""
        shape = world.shape
        pushed = self.placed(world.pushed)
        counting = self.counting(pushed, shape)
        numbers = {one.number for one in counting}
        for one in pushed:
            wanted = int(one.number in numbers)
            assert one.duplicate in (None, one not in counting), f"{one} is {'no' if one in counting else 'a'} copy"
            for group in (*shape.groups, LATE):
                found = self.effects[group, one.number]
                assert found <= wanted, f"{group}: {found} effects of {one}, expected {wanted}"
            ends = (
                sum(self.effects[group, one.number] for group in (*shape.groups, OFTEN, LATE)) + self.dead[one.number]
            )
            kept = len(shape.groups) + (shape.purged and one.seqnum >= self.purged_below)
            # For a group that was registered after the first copy the second one is the first.
            least, most = wanted * kept, wanted * (len(shape.groups) + shape.purged) + shape.comes_and_goes
            assert least <= ends <= most, (
                f"{one} was handled, or became a dead letter, {ends} times, expected {least} to {most}"
            )
        for group in (*shape.groups, LATE):
            for key in KEYS:
                wanted_order = [one.number for one in counting if one.key == key and self.effects[group, one.number]]
                of_key = set(wanted_order)
                found_order = [number for number in self.order[group] if number in of_key]
                assert found_order == wanted_order, f"{group}, key {key}: handled {found_order}, pushed {wanted_order}"
        self._check_often(world, pushed)
        self._check_dead(world)

    def _check_often(self, world: World, pushed: list[Push]) -> None:
        """The group looks for copies among the pushes since it was registered: a copy for the others may be its first one."""
        counting = self.counting([one for one in pushed if one.seqnum >= self.often_since], world.shape)
        for one in pushed:
            found = self.effects[OFTEN, one.number]
            assert found <= 1, f"{OFTEN}: {found} effects of {one}, across registrations"
            if (
                world.registered_at
                and one.seqnum > world.registered_at
                and one in counting
                and not self.dead[one.number]
            ):
                assert found == 1, f"{OFTEN}: no effect of {one}, which was pushed after {world.registered_at}"

    def _check_dead(self, world: World) -> None:
        most = world.shape.max_deliveries
        assert most or not self.deaths.given_up, "a queue without dead letters gave messages up"
        for group, id in self.deaths.given_up:
            number = self.numbers[id]
            failed, died = world.failed[group, number], self.deaths.counted[group, id]
            assert most and failed + died >= most, (
                f"{group}: message {number} is a dead letter though {failed} handlers raised or gave it back, "
                f"and {died} members died or were silent with it alone, of {most}"
            )


async def run(seed: int) -> Counter[str]:
    """One seed: everybody works, then what the log says is compared with what must be."""
    clock = JumpingClock()
    async with MemoryCluster(clock=clock) as cluster:
        world = World(cluster, clock, seed)
        ahead = world.chances.choice((4_096, 4_096, 12))
        small = constants(
            (checkpointing, "RECORDS_BETWEEN", 7),
            (delivery_rules, "READ_AHEAD", ahead),
            (arrivals, "READ_AHEAD", ahead),
        )
        with small:
            async with Witness((await cluster.connect()).book(BOOK)) as witness:
                await world.run()
                await witness.caught_up()
    oracle = Oracle(witness, world.shape.shards)
    oracle.check(world)
    world.counted.update(
        {"messages": len(world.pushed), "effects": sum(oracle.effects.values()), "dead letters": len(oracle.dead)}
    )
    return world.counted


if __name__ == "__main__":
    sys.exit(main(run))
