"""A queue of typed messages on one LogBook: see the package.

    queue = await Queue.open(client.book("shop"), "emails", Email, dead_letter="emails.dead")
    await queue.push(Email("ann@example.org"))
    async with queue.consume() as messages:
        async for message in messages:
            async with message: ...

Everything of a queue is in its book: any number of processes may use one at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

import boki
from boki_common.errors import InvalidArgument
from bokilib import lease_rules
from bokilib.checkpoint_rules import CARRY_MS
from bokilib.contribution import Contribution
from bokilib.log import Log, Tokens
from bokilib.ports import BookPort, PayloadHook
from bokiqueue import inspection, settings
from bokiqueue.attempts import BACKOFF_S
from bokiqueue.carrying import trim_deleted, trim_dropped
from bokiqueue.consumer import LEASE_S, PREFETCH, Consumer
from bokiqueue.copies import PushResult
from bokiqueue.errors import QueueDiffers, WrongMode
from bokiqueue.events import Config, Item, Limits, Mode
from bokiqueue.handlers import AT_ONCE, Handler, Transacts, X
from bokiqueue.inspection import Peeked, Stats, check_unopened
from bokiqueue.items import GROUP, check_name, item_of
from bokiqueue.messages import Message
from bokiqueue.popper import Popper
from bokiqueue.producer import Producer
from bokiqueue.redriving import QUIET_S, is_letter, redrive
from bokiqueue.settings import Found
from bokiqueue.sharding import SHARDS

K = TypeVar("K")
T = TypeVar("T")

DEDUP_S: Final = 300.0
NO_LIMITS: Final = Limits()
CHANGEABLE: Final = ("dead_letter", "max_deliveries", "limits")


class Queue(Generic[T]):
    """See the module. Made by `Queue.open`.

    Attributes:
        name, kind: of the queue, of its messages. log: of the book; share it with other libraries to commit together with them.
    """

    def __init__(self, log: Log, found: Found, kind: type[T], random: Tokens) -> None:
        self.name: Final = found.config.queue
        self.kind: Final = kind
        self.log: Final = log
        self._found = found
        self._random = random
        self._producer = Producer(log, found.config, random)
        self._popper: Popper | None = None

    def __repr__(self) -> str:
        return f"<bokiqueue.Queue {self.name!r}>"

    @staticmethod
    async def open(
        book: BookPort | Log,
        name: str,
        kind: type[K],
        *,
        mode: Mode | None = None,
        shards: int | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        dedup_s: float | None = None,
        limits: Limits | None = None,
        hook: PayloadHook | None = None,
        random: Tokens | None = None,
    ) -> Queue[K]:
        """The queue of a name, which is made if there is none.

        Args:
            book: a `boki.Book`, or the `bokilib.Log` of a store: what commits together shares it.
            kind: of messages: whatever msgspec knows, or a model of pydantic; `object` for any JSON.
            mode: "consume" (default): with leases and acknowledgements. "pop": taken and gone, as in the paper.
            shards: default 8; so many members can consume.
            dead_letter: the queue that gets messages of which too many attempts failed (`attempts`); it is made too. Without one each
                message comes again, later each time, as often as it takes.
            max_deliveries: failed attempts until a message becomes a dead letter, default 5; 0: any number. Only beside `dead_letter`.
            dedup_s: for how long ids of messages are remembered, default 300. limits: of each group's handlers.
            hook, random: as of `bokilib.Log`; not beside one.

        Raises:
            QueueDiffers: it exists, with other settings. InvalidArgument.
        """
        check_name(name, "queue")
        if isinstance(book, Log) and hook is not None:
            raise InvalidArgument("expected hook= where the Log is made, found it beside one")
        log = book if isinstance(book, Log) else Log(book, hook=hook, random=random)
        wanted = {
            "mode": mode,
            "shards": shards,
            "max_deliveries": max_deliveries,
            "dead_letter": dead_letter,
            "dedup_ms": None if dedup_s is None else round(dedup_s * 1000),
            "limits": limits,
        }
        given = {field: value for field, value in wanted.items() if value is not None}
        found = await settings.find(log, name)
        if found is None:
            before = await settings.newest(log, name)  # one that was deleted
            made = _config(name, given, 1 if before is None else before.seqnum + 1)
            found = await settings.change(log, name, lambda config: config or made)
        _check_same(found.config, given)
        await _make_dead_letters(log, found.config)
        return Queue(log, found, kind, random or boki.SystemRandom())

    # -- pushing

    async def push(
        self,
        body: T,
        *,
        key: str | None = None,
        dedup_id: str | None = None,
        delay_s: float = 0.0,
        priority: int = 0,
    ) -> PushResult:
        """Push a message; return where it is in the book, an int whose `duplicate` says whether it was dropped as a copy.

        Args:
            key: messages of one key are handled in the order of their pushes, one at a time.
            dedup_id: a second message with it within the queue's window is dropped. With a key, of those of that key.
            delay_s: it is handed out so much later, at most 900 s.
            priority: 0 to 9; of what is ready in its shard the higher comes first, and one of eight is the oldest all the same.

        Raises:
            NotEncodable, InvalidArgument, AtomicTooLarge: nothing was sent. AppendUnknown: `await error.outcome()`, or push it again
            under the same `dedup_id`.
        """
        return await self._producer.push(
            [item_of(body, key=key, dedup_id=dedup_id, delay_s=delay_s, priority=priority)]
        )

    async def push_many(
        self, bodies: Sequence[T], *, key: str | None = None, delay_s: float = 0.0, priority: int = 0
    ) -> PushResult:
        """Push messages as one record: all, in this order, or none. Raises as `push`; AtomicTooLarge over 512 KiB."""
        return await self._producer.push(
            [item_of(body, key=key, delay_s=delay_s, priority=priority) for body in bodies]
        )

    def pushed(
        self,
        body: T,
        *,
        key: str | None = None,
        dedup_id: str | None = None,
        delay_s: float = 0.0,
        priority: int = 0,
    ) -> Contribution:
        """What makes a record of any library this push: for `bokilib.Atomic`, or `tx.add` of a transaction."""
        return self._producer.part([item_of(body, key=key, dedup_id=dedup_id, delay_s=delay_s, priority=priority)])

    # -- consuming

    def consume(
        self,
        *,
        group: str = GROUP,
        prefetch: int = PREFETCH,
        lease_s: float = LEASE_S,
        who: str | None = None,
        member_lease_s: float = lease_rules.LEASE_S,
        carry_s: float = CARRY_MS / 1000,
    ) -> Consumer[T]:
        """A member of a group of consumers; enter it, and iterate. Each group gets all messages.

        Args:
            prefetch: messages that handlers of this member have, or that wait for them.
            lease_s: a handler has it for so long; then the message comes again. `message.extend` asks for more.
            who: name of this member; by default a random one. No other member of the group has it at the same time. One that begins
                again under its name has its shards back at once. member_lease_s: after so much silence others take its shards.
            carry_s: what this member has in the log is written anew before it is as old: a term's age.

        Raises:
            WrongMode: the queue is popped. InvalidArgument.
        """
        return self._consumer(
            group=group,
            prefetch=prefetch,
            lease_s=lease_s,
            who=who,
            member_lease_s=member_lease_s,
            carry_s=carry_s,
        )

    def _consumer(
        self,
        *,
        group: str = GROUP,
        prefetch: int = PREFETCH,
        lease_s: float = LEASE_S,
        who: str | None = None,
        member_lease_s: float = lease_rules.LEASE_S,
        carry_s: float = CARRY_MS / 1000,
        only: Callable[[Item], bool] | None = None,
        backoff_s: float = BACKOFF_S,
    ) -> Consumer[T]:
        """As `consume`; `only`: what it hands out. `backoff_s`: as of `handler`."""
        self._check_mode("consume")
        config = self._found.config
        if group not in config.groups:
            raise settings.no_such_group(config, group)
        return Consumer(
            self.log,
            self._found,
            self.kind,
            group,
            who=who or self._random.token(8).hex(),
            prefetch=prefetch,
            lease_s=lease_s,
            member_lease_s=member_lease_s,
            dead_letters=lambda name: Producer(self.log, _config(name, {"shards": 1}), self._random),
            carry_ms=round(carry_s * 1000),
            only=only,
            backoff_s=backoff_s,
        )

    def handler(
        self,
        store: Transacts[X],
        *,
        group: str = GROUP,
        at_once: int = AT_ONCE,
        prefetch: int = PREFETCH,
        lease_s: float = LEASE_S,
        backoff_s: float = BACKOFF_S,
        who: str | None = None,
        member_lease_s: float = lease_rules.LEASE_S,
        carry_s: float = CARRY_MS / 1000,
    ) -> Callable[[Callable[[Message[T], X], Awaitable[None]]], Handler[T, X]]:
        """Makes a handler of a function of a message and a transaction: `@queue.handler(store)`.

        What the function writes and pushes through the transaction and the message's ACK are one record, so they happen once.

        Args:
            store: runs transactions over this queue's log: `bokistore.BokiStore(...)`, with `Queue.open(store.log, ...)`.
            at_once: messages handled at once. lease_s: a handler may run for so long; `message.extend` asks for more.
            backoff_s: after an error it comes again so much later, twice as long each time.
            The rest is as of `consume`.
        """

        def decorate(body: Callable[[Message[T], X], Awaitable[None]]) -> Handler[T, X]:
            def consume() -> Consumer[T]:
                return self._consumer(
                    group=group,
                    prefetch=prefetch,
                    lease_s=lease_s,
                    who=who,
                    member_lease_s=member_lease_s,
                    carry_s=carry_s,
                    backoff_s=backoff_s,
                )

            return Handler(consume, store, body, at_once=at_once, backoff=backoff_s, lease_s=lease_s)

        return decorate

    @property
    def limits(self) -> Limits:
        """The limits of each group, as far as this program has read them."""
        return self._found.config.limits

    @property
    def groups(self) -> list[str]:
        """Groups of consumers, by name."""
        return sorted(self._found.config.groups)

    async def register(self, group: str) -> None:
        """Adds a group of consumers, which gets what is pushed from now on; nothing, if there is one. It keeps messages until dropped."""
        self._check_mode("consume")
        check_name(group, "group", slash=False)
        self._found = await settings.register(self.log, self.name, group)

    async def drop(self, group: str) -> None:
        """Ends a group: it holds back no messages any more. Raises NoSuchGroup."""
        found = await settings.change_existing(
            self.log, self.name, lambda config: settings.without_group(config, group)
        )
        self._found = found
        await trim_dropped(self.log, found, [(shard, group) for shard in range(found.config.shards)])

    # -- tending

    async def stats(self, group: str = GROUP, *, at_ms: int = 0) -> Stats:
        """How much waits for a group, since when, with whom. It appends nothing.

        Args:
            at_ms: what time it is (`boki.SystemClock().now_ms()`): while nobody writes, the log's time stands still. Without it a member
                that died is alive until somebody writes.

        Raises:
            NoSuchGroup, NoSuchQueue.
        """
        return (await inspection.look(self.log, (await self._newest()).config, group, at_ms=at_ms))[0]

    async def peek(self, most: int = 10, *, group: str = GROUP) -> list[Peeked]:
        """The oldest messages that are not done, as JSON. It appends nothing. Raises NoSuchGroup."""
        return (await inspection.look(self.log, (await self._newest()).config, group, most))[1]

    async def pause(self) -> None:
        """No member hands out anything more, of any group, until `resume`; what handlers have they may finish."""
        self._check_mode("consume")
        await self._change(lambda config: msgspec.structs.replace(config, paused=True))

    async def resume(self) -> None:
        """Messages are handed out again."""
        await self._change(lambda config: msgspec.structs.replace(config, paused=False))

    async def change(
        self,
        *,
        dead_letter: str | None = None,
        max_deliveries: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Change settings of the queue, for all its processes: members apply them when they read them.

        Args:
            dead_letter: the queue that gets dead letters from now on; "": none, so nothing is given up any more. None: as it is.
            max_deliveries, limits: as of `open`. None: as it is.

        Raises:
            InvalidArgument. WrongMode: the queue is popped.
        """
        self._check_mode("consume")
        await self._change(lambda config: settings.with_limits(config, dead_letter, max_deliveries, limits))
        await _make_dead_letters(self.log, self._found.config)

    async def delete(self) -> None:
        """Delete the queue, with all that waits in it. Its members get NoSuchQueue; who opens it by its name makes a new one.

        Stop what pushes to it first: what is pushed to a queue that is deleted waits for one that is made later. Raises NoSuchQueue.
        """
        before: list[Config] = []

        def deleted(config: Config) -> Config:
            before.append(config)
            return settings.deleted(config)

        self._found = await settings.change_existing(self.log, self.name, deleted)
        await trim_deleted(self.log, before[-1], self._found.seqnum)

    async def limit_key(self, key: str, per_second: float | None) -> None:
        """Gives one key a rate of its own, for each group: messages handed out a second; 0: any; None: as all keys of the queue.

        Members apply it when they read it. Raises InvalidArgument: too rare, or too many keys have one.
        """
        self._check_mode("consume")
        check_name(key, "key")
        await self._change(lambda config: settings.with_key_rate(config, key, per_second))

    async def purge(self, group: str = GROUP) -> None:
        """A group gets nothing of what was pushed before now; what handlers have they may finish. Raises NoSuchGroup."""
        self._check_mode("consume")
        now = await self.log.book.now(consistency="linearizable")
        await self._change(lambda config: settings.purged(config, group, now + 1))

    async def purge_record(self, seqnum: int) -> None:
        """Nobody gets the messages of a record that this program cannot open (`peek` lists it): what waits behind it goes on.

        It holds for all groups; what handlers have they may finish. Raises InvalidArgument: it is no such record, or can be opened.
        """
        self._check_mode("consume")
        await check_unopened(self.log, (await self._newest()).config, seqnum)
        await self._change(lambda config: settings.with_dropped(config, seqnum))

    async def redrive(self, most: int | None = None, *, quiet_s: float = QUIET_S) -> int:
        """Of a queue of dead letters: moves them back to where they came from, each once; returns how many.

        Args:
            most: default: as many as there are now. quiet_s: it ends after so many seconds without one: others have them.
        """
        wanted = most if most is not None else (await self.stats()).depth
        if not wanted:
            return 0
        consumer = Queue(self.log, await self._newest(), object, self._random)._consumer(only=is_letter)
        return await redrive(self.log, consumer, self._random, wanted, quiet_s=quiet_s)

    async def _change(self, alter: Callable[[Config], Config]) -> None:
        self._found = await settings.change_existing(self.log, self.name, alter)

    async def _newest(self) -> Found:
        self._found = await settings.existing(self.log, self.name)
        return self._found

    # -- popping

    async def pop(self, *, timeout: float = 0.0) -> T:
        """Takes the oldest message of some shard: it is gone, whatever becomes of this process.

        Args:
            timeout: seconds to wait for one.

        Raises:
            QueueEmpty. WrongMode: the queue is consumed. AppendUnknown: perhaps one was taken. NotEncodable.
        """
        return await self._pops().pop(self.kind, timeout)

    async def pop_from(self, shard: int, *, timeout: float = 0.0) -> T:
        """The same of one shard."""
        if not 0 <= shard < self._found.config.shards:
            raise InvalidArgument(
                f"expected a shard of 0 to {self._found.config.shards - 1}, found {shard!r}", found=shard
            )
        return await self._pops().pop(self.kind, timeout, shard)

    def _pops(self) -> Popper:
        self._check_mode("pop")
        if self._popper is None:
            self._popper = Popper(self.log, self._found.config, self._random.token(1)[0])
        return self._popper

    def _check_mode(self, needed: Mode) -> None:
        found = self._found.config.mode
        if found != needed:
            raise WrongMode(
                f"queue {self.name!r} was made to {found}, this needs one made with mode={needed!r}",
                expected=needed,
                found=found,
            )


async def _make_dead_letters(log: Log, config: Config) -> None:
    """Makes the queue of dead letters that the settings name, if there is none."""
    if config.dead_letter is not None:
        dead = _config(config.dead_letter, {"shards": 1})
        await settings.change(log, dead.queue, lambda found: found or dead)


def _config(name: str, given: Mapping[str, object], start: int = 1) -> Config:
    """The settings of a new queue, whose messages are those from `start` on. Raises InvalidArgument."""
    chosen: dict[str, object] = {
        "mode": "consume",
        "shards": SHARDS,
        "max_deliveries": settings.MAX_DELIVERIES if given.get("dead_letter") is not None else 0,
        "dead_letter": None,
        "dedup_ms": round(DEDUP_S * 1000),
        "limits": NO_LIMITS,
        **given,
    }
    groups = {GROUP: start} if chosen["mode"] == "consume" else {}
    return settings.checked(Config(queue=name, groups=groups, **chosen))  # type: ignore[arg-type] # checked by it


def _check_same(config: Config, given: Mapping[str, object]) -> None:
    """Raises QueueDiffers, InvalidArgument."""
    most = given.get("max_deliveries")
    if isinstance(most, int) and given.get("dead_letter") is None:
        settings.check_limited(config, most)
    for field, value in given.items():
        found = config.attempts_most if field == "max_deliveries" else getattr(config, field)
        if found != value:
            what = "`queue.change` changes it" if field in CHANGEABLE else "that is the same for its whole life"
            raise QueueDiffers(
                f"queue {config.queue!r} exists with {field}={found!r}, asked for {value!r}: {what}",
                expected=value,
                found=found,
            )
