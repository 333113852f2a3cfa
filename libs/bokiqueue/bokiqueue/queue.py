"""A queue of typed messages on one LogBook. See the package.

    queue = await Queue.open(client.book("shop"), "emails", Email, dead_letter="emails.dead")
    await queue.push(Email("ann@example.org"))
    async with queue.consume() as messages:
        async for message in messages:
            async with message: ...

The whole state of a queue is in its book, so any number of processes may use it at the same time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

import boki
from boki_common.errors import Conflict, InvalidArgument
from boki_common.unpickled import Unpickled
from bokilib.append.atomic import Atomic
from bokilib.append.log import Log, Tokens
from bokilib.errors import partly_applied
from bokilib.follow import lease_rules
from bokilib.ports import BookPort, PayloadHook
from bokilib.records import tags
from bokilib.records.arguments import check_lease, check_number, check_seconds, check_text
from bokilib.records.codec import check_type
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokilib.stacks import shown
from bokiqueue import settings
from bokiqueue.attempts import BACKOFF_S
from bokiqueue.consume.consumer import LEASE_S, PREFETCH, Consumer
from bokiqueue.consume.handlers import AT_ONCE, Handler, TransactionRunner, X, check_store
from bokiqueue.consume.messages import LEASE_MOST_S, Message
from bokiqueue.errors import QueueDiffers, WrongMode
from bokiqueue.manage import inspection
from bokiqueue.manage.carrying import deleted_marks, dropped_marks
from bokiqueue.manage.inspection import Peeked, Stats, check_unopened
from bokiqueue.model.events import Config, Id, Item, Limits, Mode, Source
from bokiqueue.model.items import GROUP, check_name, item_of
from bokiqueue.model.limit_rules import check_key_rate
from bokiqueue.popper import Popper, Replaced
from bokiqueue.push.copies import PushResult
from bokiqueue.push.producer import Producer
from bokiqueue.settings import VersionedConfig
from bokiqueue.sharding import SHARDS

K = TypeVar("K")
T = TypeVar("T")

DEDUP_S: Final = 300.0
NO_LIMITS: Final = Limits()
QUIET_S: Final = 5.0
"""The time without a message after which other consumers have the rest."""
WHO_CHARS: Final = 1_024
CHANGEABLE: Final = ("dead_letter", "max_deliveries", "limits")


class Queue(Unpickled, Generic[T]):
    """A queue of typed messages. Made by `Queue.open`; see the module.

    Attributes:
        name: the name of the queue.
        kind: the type of its messages.
        log: the log of the book; share it with other libraries to commit together with them.
    """

    def __init__(self, log: Log, found: VersionedConfig, kind: type[T], random: Tokens) -> None:
        self.name: Final = found.config.queue
        self.kind: Final = kind
        self.log: Final = log
        self._found = found
        self._random = random
        self._producer = Producer(log, found.config, random, found.seqnum)
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
        """Open the queue of a name, or make it if there is none.

        Args:
            book: a `boki.Book`, or the `bokilib.Log` of a store, to commit together with it.
            kind: the type of messages: any that msgspec knows, or a pydantic model; `object` for any JSON.
                A body that would be read as another value of this type is refused, as a date in a part that is declared as `dict`,
                `list` or Any, which takes JSON alone. For `object` dates, sets, tuples and the like are read as JSON.
            mode: "consume" (default) for leases and acknowledgements; "pop" for messages that are removed when taken,
                as in the paper.
            shards: the most members that can consume at once, 8 by default.
            dead_letter: the queue that gets messages with too many failed attempts (`attempts`); it is made too.
                Without one each message is redelivered without limit, later each time.
            max_deliveries: failed attempts before a message becomes a dead letter, 5 by default; 0 for any number. Only
                with `dead_letter`.
            dedup_s: the window in which deduplication ids are remembered, 300 by default.
            limits: limits of each group's handlers.
            hook: as of `bokilib.Log`; not with one.
            random: as of `bokilib.Log`; not with one.

        Raises:
            QueueDiffers: the queue exists with other settings.
            WrongMode: the queue of dead letters is popped.
            InvalidArgument: a setting is out of range, messages of this type could not be restored from JSON, or dead letters would
                go round in a circle of queues.
        """
        check_name(name, "queue")
        check_type(kind, f"queue {name!r}")
        if isinstance(book, Log) and hook is not None:
            raise InvalidArgument("expected hook= where the Log is made, found it beside one")
        log = book if isinstance(book, Log) else Log(book, hook=hook, random=random)
        wanted = {
            "mode": mode,
            "shards": shards,
            "max_deliveries": max_deliveries,
            "dead_letter": dead_letter,
            "dedup_ms": None if dedup_s is None else round(check_seconds("dedup_s=", dedup_s) * 1000),
            "limits": limits,
        }
        given = {field: value for field, value in wanted.items() if value is not None}
        existing_one = await settings.find(log, name)
        found = existing_one or await settings.create(log, name, lambda start: _config(name, given, start))
        _check_same(found.config, given)
        with (
            nullcontext()
            if existing_one
            else partly_applied("the queue is made, its queue of dead letters not; call again")
        ):
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
        """Push a message, and return the seqnum of its record, an int whose `duplicate` says whether the message was dropped.

        Args:
            key: messages of one key are handled in the order of their pushes, one at a time.
            dedup_id: a second message with this id within the queue's window is dropped; with a key, among messages of
                that key.
            delay_s: the message is delivered after this time, at most 900 s.
            priority: 0 to 9; the highest of the ready messages of a shard comes first, but one of eight is the oldest.

        Raises:
            NotEncodable: the body is no JSON, or would not be read as the same value of the queue's type; nothing was sent.
            InvalidArgument: an option is out of range; nothing was sent.
            AtomicTooLarge: the message is too large; nothing was sent.
            AppendUnknown: it may be in the log; `await error.outcome()`, or push it again under the same `dedup_id`.
        """
        return await self._producer.push(
            [item_of(body, self.kind, key=key, dedup_id=dedup_id, delay_s=delay_s, priority=priority)]
        )

    async def push_many(
        self, bodies: Sequence[T], *, key: str | None = None, delay_s: float = 0.0, priority: int = 0
    ) -> PushResult:
        """Push messages as one record: all, in this order, or none. Raises as `push`; AtomicTooLarge over 512 KiB."""
        return await self._producer.push(
            [item_of(body, self.kind, key=key, delay_s=delay_s, priority=priority) for body in bodies]
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
        """Return the contribution that makes any library's record this push: for `bokilib.Atomic`, or `tx.add` of a transaction.

        The record is in the queue's book: open the queue on the log of the store, `Queue.open(store.log, ...)`.
        """
        return self._producer.part(
            [item_of(body, self.kind, key=key, dedup_id=dedup_id, delay_s=delay_s, priority=priority)]
        )

    # -- consuming

    def consume(
        self,
        *,
        group: str = GROUP,
        prefetch: int = PREFETCH,
        lease_s: float = LEASE_S,
        who: str | None = None,
        member_lease_s: float = lease_rules.LEASE_S,
        carry_s: float = REWRITE_MS / 1000,
    ) -> Consumer[T]:
        """Return a member of a group of consumers; enter it, and iterate. Each group gets all messages.

        Args:
            group: the name of the group, which has to be registered.
            prefetch: the most messages that handlers of this member have or that wait for them.
            lease_s: the time that a handler has for a message before it is redelivered. `message.extend` asks for more.
            who: the name of this member, by default a random one. No other member of the group may have it at the same
                time. A member that starts again under its name gets its shards back at once.
            member_lease_s: the silence after which other members take its shards.
            carry_s: the age that no record of this member reaches, because it rewrites them before: that of a term.

        Raises:
            WrongMode: the queue is popped.
            NoSuchGroup: the group is not registered.
            InvalidArgument: an option is out of range.
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
        carry_s: float = REWRITE_MS / 1000,
        only: Callable[[Item], bool] | None = None,
        backoff_s: float = BACKOFF_S,
    ) -> Consumer[T]:
        """Return a member as `consume` does.

        Args:
            only: selects the messages that it delivers.
            backoff_s: as of `handler`.
        """
        self._check_mode("consume")
        _check_member(group, who, lease_s, member_lease_s, carry_s, backoff_s)
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
        store: TransactionRunner[X],
        *,
        group: str = GROUP,
        at_once: int = AT_ONCE,
        prefetch: int = PREFETCH,
        lease_s: float = LEASE_S,
        backoff_s: float = BACKOFF_S,
        who: str | None = None,
        member_lease_s: float = lease_rules.LEASE_S,
        carry_s: float = REWRITE_MS / 1000,
    ) -> Callable[[Callable[[Message[T], X], Awaitable[None]]], Handler[T, X]]:
        """Make a handler of a function of a message and a transaction: `@queue.handler(store)`.

        What the function writes and pushes through the transaction is one record with the message's ACK, so it happens
        once.

        Args:
            store: runs transactions over this queue's log: `bokistore.BokiStore(...)`, with `Queue.open(store.log,
                ...)`.
            at_once: the number of messages handled at once.
            lease_s: the time that the function may run; `message.extend` asks for more.
            backoff_s: the wait before a message is redelivered after its first error; it doubles each time.
            group: as of `consume`, as all others.

        Raises:
            WrongBook: the store is in another book than the queue.
            InvalidArgument: an option is out of range.
        """
        check_store(store, self.log.origin(f"queue {self.name!r}"))
        _check_member(group, who, lease_s, member_lease_s, carry_s, backoff_s)

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
        """The names of the groups of consumers."""
        return sorted(self._found.config.groups)

    async def register(self, group: str) -> None:
        """Register a group of consumers, which gets all messages pushed from now on and keeps them until it is dropped.

        No effect if the group exists.
        """
        self._check_mode("consume")
        check_name(group, "group", slash=False)
        self._knows(await settings.register(self.log, self.name, group))

    async def drop(self, group: str) -> None:
        """Drop a group, so that it holds back no messages.

        Raises:
            NoSuchGroup: the group is not registered.
        """
        check_name(group, "group")
        found = await settings.change_existing(
            self.log, self.name, lambda config: settings.without_group(config, group)
        )
        self._knows(found)
        groups = [(shard, group) for shard in range(found.config.shards)]
        await settings.trim_replaced(self.log, dropped_marks(found, groups))

    # -- managing

    async def stats(self, group: str = GROUP, *, at_ms: int = 0) -> Stats:
        """Return how many messages wait for a group, for how long, and which members consume. It appends nothing.

        Args:
            at_ms: the current time (`boki.SystemClock().now_ms()`): the log's time stands still while no writer
                appends. Without it a dead member counts as alive until a writer appends.

        Raises:
            NoSuchGroup: the group is not registered.
            NoSuchQueue: the queue was deleted.
        """
        check_name(group, "group")
        return (await inspection.look(self.log, (await self._newest()).config, group, at_ms=at_ms))[0]

    async def peek(self, most: int = 10, *, group: str = GROUP) -> list[Peeked]:
        """Return the oldest unfinished messages as JSON. It appends nothing.

        Raises:
            NoSuchGroup: the group is not registered.
        """
        check_name(group, "group")
        return (await inspection.look(self.log, (await self._newest()).config, group, most))[1]

    async def pause(self) -> None:
        """Stop deliveries to all members of all groups until `resume`. Handlers finish the messages that they have."""
        self._check_mode("consume")
        await self._change(lambda config: msgspec.structs.replace(config, paused=True))

    async def resume(self) -> None:
        """Resume deliveries."""
        await self._change(lambda config: msgspec.structs.replace(config, paused=False))

    async def change(
        self,
        *,
        dead_letter: str | None = None,
        max_deliveries: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Change settings of the queue, for all its processes. Members apply them when they read them.

        Args:
            dead_letter: the queue that gets dead letters from now on; "" for none, so that no message is given up. None
                keeps the setting.
            max_deliveries: as of `open`. None keeps the setting.
            limits: as of `open`. None keeps the setting.

        Raises:
            InvalidArgument: a setting is out of range, or dead letters would go round in a circle of queues.
            WrongMode: the queue is popped, or that of dead letters.
        """
        self._check_mode("consume")
        await self._change(lambda config: settings.with_limits(config, dead_letter, max_deliveries, limits))
        await _make_dead_letters(self.log, self._found.config)

    async def delete(self) -> None:
        """Delete the queue with all its messages. Its members get NoSuchQueue; opening the name again makes a new queue.

        Messages that producers push to a deleted queue wait for one that is made later, and so they do if that has other shards.

        Raises:
            NoSuchQueue: it was deleted before.
        """
        before, found = await settings.delete(self.log, self.name)
        self._knows(found)
        await settings.trim_replaced(self.log, deleted_marks(before, found.seqnum))

    async def limit_key(self, key: str, per_second: float | None) -> None:
        """Give one key a rate of its own, for each group. Members apply it when they read it.

        Args:
            per_second: messages delivered per second; 0 for any number, None for the rate of all keys of the queue.

        Raises:
            InvalidArgument: the rate is too low, or too many keys have one.
        """
        self._check_mode("consume")
        check_name(key, "key")
        if per_second is not None:
            check_key_rate(per_second)
        await self._change(lambda config: settings.with_key_rate(config, key, per_second))

    async def purge(self, group: str = GROUP) -> None:
        """Drop all messages for a group that were pushed before now.

        Handlers finish the messages that they have; one that fails is not delivered again.

        Raises:
            NoSuchGroup: the group is not registered.
        """
        self._check_mode("consume")
        check_name(group, "group")
        now = await self.log.book.now(consistency="linearizable")
        await self._change(lambda config: settings.purged(config, group, now + 1))

    async def purge_record(self, seqnum: int) -> None:
        """Drop the messages of a record that this program cannot open, for all groups, so that messages behind it are delivered.

        `peek` lists such records. Handlers finish the messages that they have.

        Raises:
            InvalidArgument: it is no such record, or can be opened.
        """
        self._check_mode("consume")
        await check_unopened(self.log, (await self._newest()).config, seqnum)
        await self._change(lambda config: settings.with_dropped(config, seqnum))

    async def redrive(
        self, most: int | None = None, *, group: str | None = None, all_groups: bool = False, quiet_s: float = QUIET_S
    ) -> Redriven:
        """Move the messages of a queue of dead letters back to the queues that they came from, each once, and return how many.

        A letter goes back to the group that gave it up, and no other group of its queue gets it. Letters of versions that did not
        note the group go to the only group of their queue.

        Letters are left if their queue does not exist, or its group: the result is an int with attributes for their numbers.

        Args:
            most: the most messages to move, by default as many as there are now.
            group: the group that gets letters whose own group is not known, or not registered any more; without it they are left
                if their queue has several groups.
            all_groups: let all groups get such letters. One that handled the message before handles it again.
            quiet_s: end after this time without a message: other consumers have the rest.

        Raises:
            InvalidArgument: both `group` and `all_groups` were given, or `group` is no name.
            PartlyApplied: some were moved; the same call again moves the others.
            AppendUnknown: the last message may have been moved; the same call again moves those that were not.
        """
        check_seconds("quiet_s=", quiet_s)
        if most is not None and type(most) is not int:
            raise InvalidArgument(f"expected most= to be a number of messages, found {shown(most)}", found=most)
        if group is not None and all_groups:
            raise InvalidArgument(f"expected group= or all_groups=True, found both, with group={group!r}", found=group)
        if group is not None:
            check_name(group, "group", slash=False)
        wanted = most if most is not None else (await self.stats()).depth
        if not wanted:
            return Redriven(0)
        letters = Queue(self.log, await self._newest(), object, self._random)
        receivers = Receivers(group, all_groups)
        redrive = Redrive(self.log, lambda only: letters._consumer(only=only), self._random, receivers)
        await redrive.run(wanted, quiet_s)
        return redrive.result()

    async def _change(self, alter: Callable[[Config], Config]) -> None:
        self._knows(await settings.change_existing(self.log, self.name, alter))

    async def _newest(self) -> VersionedConfig:
        self._knows(await settings.existing(self.log, self.name))
        return self._found

    def _knows(self, found: VersionedConfig) -> None:
        """Note newer settings."""
        self._found = found
        self._producer.follow(found.config, found.seqnum)

    # -- popping

    async def pop(self, *, timeout: float = 0.0) -> T:
        """Take the oldest message of some shard. It is gone, even if this process dies.

        Args:
            timeout: the seconds to wait for a message.

        Raises:
            QueueEmpty: no message came in time.
            WrongMode: the queue is consumed.
            AppendUnknown: a message may have been taken.
            UnfitMessage: the message was taken, and does not fit the queue's type.
        """
        return await self._popped(_check_timeout(timeout))

    async def pop_from(self, shard: int, *, timeout: float = 0.0) -> T:
        """Take the oldest message of one shard, as `pop` does."""
        if type(shard) is not int or shard < 0:
            raise InvalidArgument(f"expected the number of a shard, found {shard!r}", found=shard)
        return await self._popped(_check_timeout(timeout), shard)

    async def _popped(self, timeout: float, shard: int | None = None) -> T:
        """Pop from the queue that has this name now.

        Raises:
            NoSuchQueue: it was deleted.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout
        if shard is not None and shard >= self._found.config.shards:
            await self._newest()
        while True:
            popper = self._pops()
            if shard is not None and shard >= self._found.config.shards:
                most = self._found.config.shards - 1
                raise InvalidArgument(f"expected a shard of 0 to {most}, found {shard!r}", found=shard)
            try:
                return await popper.pop(self.kind, max(0.0, deadline_s - loop.time()), shard)
            except Replaced:
                await self._newest()
                if self._popper is popper:
                    self._popper = self._new_popper(popper)

    def _pops(self) -> Popper:
        self._check_mode("pop")
        if self._popper is None or self._popper.config.shards != self._found.config.shards:
            self._popper = self._new_popper(self._popper)
        return self._popper

    def _new_popper(self, before: Popper | None) -> Popper:
        known = self._found.seqnum
        return Popper(self.log, self._found.config, self._random.token(1)[0], known=known, before=before)

    def _check_mode(self, needed: Mode) -> None:
        found = self._found.config.mode
        if found != needed:
            raise WrongMode(
                f"queue {self.name!r} was made to {found}, this needs one made with mode={needed!r}",
                expected=needed,
                found=found,
            )


def _check_member(
    group: str, who: str | None, lease_s: float, member_lease_s: float, carry_s: float, backoff_s: float
) -> None:
    """Check the options of a member of a group. Raises InvalidArgument."""
    check_name(group, "group")
    if who is not None and len(check_text("a name (who=)", who)) > WHO_CHARS:
        raise InvalidArgument(f"expected who= of up to {WHO_CHARS} characters, found {len(who)}", found=len(who))
    check_lease(lease_s, LEASE_MOST_S)
    check_lease(member_lease_s)
    check_seconds("carry_s=", carry_s)
    check_seconds("backoff_s=", backoff_s)


def _check_timeout(timeout: float) -> float:
    """Return the seconds to wait for a message; infinite means without end. Raises InvalidArgument."""
    return timeout if timeout == math.inf else check_number("timeout= in seconds", timeout)


async def _make_dead_letters(log: Log, config: Config) -> None:
    """Make the queue of dead letters that the settings name, if it does not exist."""
    if config.dead_letter is not None:
        name = config.dead_letter
        await settings.create(log, name, lambda start: _config(name, {"shards": 1}, start))


def _config(name: str, given: Mapping[str, object], start: int = 1) -> Config:
    """Return the settings of a new queue, whose messages are those from `start` on. Records below are of a deleted queue.

    Raises:
        InvalidArgument: a setting is out of range.
    """
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
    registered = groups if start > 1 else {}
    return settings.checked(Config(queue=name, groups=groups, registered=registered, **chosen))  # type: ignore[arg-type] # checked by it


def _check_same(config: Config, given: Mapping[str, object]) -> None:
    """Check that the given settings are those of the queue.

    Raises:
        QueueDiffers: one differs.
        InvalidArgument: `max_deliveries` was given to a queue without dead letters.
    """
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


def is_dead_letter(item: Item) -> bool:
    """Return True if a message is a dead letter, and not one that was pushed to the queue of dead letters itself."""
    return item.source is not None


def _first_id(source: Source) -> tuple[int, Id]:
    """Return the shard and the id of a dead letter in the queue that it came from."""
    return source.shard, Id(source.seqnum, source.number)


class Redriven(int):
    """The number of dead letters that a redrive moved.

    Attributes:
        left: the number of letters that it found and left, by the name of the queue that they came from, which does not exist.
        without_group: likewise of letters whose queue exists, and whose group is not registered there, or not known.
    """

    left: Mapping[str, int]
    without_group: Mapping[str, int]

    def __new__(
        cls, moved: int, left: Mapping[str, int] | None = None, without_group: Mapping[str, int] | None = None
    ) -> Redriven:
        made = super().__new__(cls, moved)
        made.left = {} if left is None else left
        made.without_group = {} if without_group is None else without_group
        return made

    def __repr__(self) -> str:
        more = f", without_group={dict(self.without_group)}" if self.without_group else ""
        return f"Redriven({int(self)}, left={dict(self.left)}{more})"

    def __str__(self) -> str:
        return str(int(self))


class Receivers(NamedTuple):
    """The receivers of letters whose own group is not known, or not registered any more.

    Attributes:
        group: the group that gets them.
        all_groups: True if all groups do.
    """

    group: str | None = None
    all_groups: bool = False

    def of(self, config: Config, own: str) -> str | None:
        """Return the only group that gets a letter of the group `own`, "" for all groups of the queue, or None if it is left.

        The only group of a queue is all of its groups: so its letters are pushed in the form that all versions know.
        """
        if config.mode == "pop":
            return ""
        single = len(config.groups) == 1
        for chosen in (own, self.group):
            if chosen in config.groups:
                return "" if single else chosen
        any_group = (self.all_groups and config.groups) or (single and not own and self.group is None)
        return "" if any_group else None


class RedriveTarget(NamedTuple):
    """A queue to which letters go back. `snapshot`: the place as of which its settings are the newest."""

    config: Config
    snapshot: int
    producer: Producer


class Redrive:
    """Dead letters on their way back to the queues that they came from. Letters whose queue or group does not exist are left.

    The record that moves a letter expects the settings of its queue: its group is registered there, and the number of shards is
    the queue's. If they were changed, the letter is delivered again and moved by the new ones.

    Attributes:
        moved: the number of letters moved.
        left: ids of letters that were read and left, by the names of the queue and group that they came from.
    """

    def __init__(
        self,
        log: Log,
        consumer: Callable[[Callable[[Item], bool]], Consumer[object]],
        random: Tokens,
        receivers: Receivers,
    ) -> None:
        """Prepare it; `consumer` makes a member of the queue of dead letters that delivers some messages."""
        self.moved = 0
        self.left: Final[dict[tuple[str, str], set[tuple[int, Id]]]] = {}
        self._log = log
        self._consumer = consumer
        self._random = random
        self._receivers = receivers
        self._targets: dict[str, RedriveTarget] = {}
        self._missing: set[str] = set()

    async def run(self, most: int, quiet_s: float) -> None:
        """Move up to `most` letters.

        A member keeps the messages that it delivers once it has begun. So each time that a letter of another queue or group is
        found that does not exist, a member without such letters follows.
        """
        again = True
        while again:
            with self._partly():
                again = await self._round(frozenset(self.left), most, quiet_s)

    def result(self) -> Redriven:
        """Return what was moved and left."""
        left, without_group = dict[str, int](), dict[str, int]()
        for (queue, _), letters in sorted(self.left.items()):
            counts = left if queue in self._missing else without_group
            counts[queue] = counts.get(queue, 0) + len(letters)
        return Redriven(self.moved, left, without_group)

    def _partly(self) -> AbstractContextManager[None]:
        """Turn errors that say that nothing was applied into PartlyApplied once letters were moved."""
        if not self.moved:
            return nullcontext()
        return partly_applied(f"{self.moved} messages were moved; call again to move the others")

    async def _round(self, gone: frozenset[tuple[str, str]], most: int, quiet_s: float) -> bool:
        """Move letters but those of queues and groups that are gone. Return True if another place is found to be gone."""
        async with self._consumer(lambda item: self._is_wanted(item, gone)) as letters:
            while self.moved < most:
                with self._partly():
                    try:
                        async with asyncio.timeout(quiet_s):
                            message = await anext(letters)
                    except TimeoutError:
                        return False
                    if not await self._move(message):
                        return True
        return False

    def _is_wanted(self, item: Item, gone: frozenset[tuple[str, str]]) -> bool:
        if not is_dead_letter(item):
            return False
        assert item.source is not None
        place = item.source.queue, item.source.group
        if place not in gone:
            return True
        self.left[place].add(_first_id(item.source))
        return False

    async def _move(self, message: Message[object]) -> bool:
        """Move one letter; return False if its queue or group does not exist. The letter is released then, without a failed attempt."""
        source, item = message.source, message.item
        assert source is not None, "the consumer delivers dead letters only"
        target = await self._target(source.queue)
        group = None if target is None else self._receivers.of(target.config, source.group)
        if target is None or group is None:
            self.left[source.queue, source.group] = {_first_id(source)}
            return False
        expect = {tags.queue_config(source.queue): target.snapshot}
        back = Item(item.body, item.key, item.dedup, item.delay_ms, None, item.priority)
        try:
            async with message, Atomic(self._log) as tx:
                tx.add(message.acked())
                tx.add(target.producer.part([back], group))
                tx.add(Contribution((), expect))
        except Conflict as conflict:
            if not self._log.moved(expect, conflict):
                raise
            del self._targets[source.queue]
            return True
        self.moved += 1
        return True

    async def _target(self, queue: str) -> RedriveTarget | None:
        """Return a queue as of its settings, or None if it does not exist."""
        if queue not in self._targets:
            found, snapshot = await settings.newest_at(self._log, queue)
            if found is None or found.config.deleted:
                self._missing.add(queue)
                return None
            self._targets[queue] = RedriveTarget(
                found.config, snapshot, Producer(self._log, found.config, self._random)
            )
        return self._targets[queue]
