"""The owner of one shard for one group: it holds the fence, has the messages in memory, and appends decisions.

    owner = ShardOwner(...); await owner.take(last)
    owner.take_deliveries(most, now_s)      # deliveries, at once or through `deliver` once DELIVER is in the log
    await owner.ack(receipt)

- One append is in flight. Decisions made meanwhile are the next record, which the shards of one member share. Each
  record expects the claim. An owner that lost the claim gets a Conflict and ends: none of its records can happen any
  more, and the receipts of its handlers are stale.
- Records of handlers that contain an ACK (`ack_part`), beside effects of other libraries, pin the message until the
  handler reports their outcome. Until then a checkpoint covers nothing that may come after such a record.
- If a handler does not know the outcome (`doubt`), the owner claims its shard again. A record that expects the former
  claim is either in the log by then, where it is found, or can never get there. Other messages stay with their
  handlers.
- A checkpoint is due after a number of records; then the streams are trimmed (`checkpointing`). Old records are
  rewritten (`tend`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

import msgspec

import boki
from boki_common.errors import Conflict, OutcomeUnknown
from boki_common.logs import get_logger
from bokilib.append.batcher import AppendBatcher, Driver, Placed
from bokilib.append.fence import Claimed, Fence
from bokilib.append.log import Log
from bokilib.append.log_clock import LogClock
from bokilib.errors import AtomicTooLarge, Fenced, PayloadHookFailed
from bokilib.follow.follower import Follower
from bokilib.pauses import retried
from bokilib.records import tags
from bokilib.records.conflict_rules import Claim
from bokilib.records.contribution import Contribution
from bokilib.records.events import encodable
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokiqueue.attempts import BACKOFF_MOST_S, BACKOFF_S
from bokiqueue.checkpoint.checkpointing import Checkpointing, stream
from bokiqueue.failures import Failure, failure_of
from bokiqueue.model import receipts
from bokiqueue.model.delivery_rules import Delivery, DeliveryBatch, DeliverySchedule
from bokiqueue.model.events import Acked, Config, ConsumerEvent, Dead, Delivered, Id, Item, Nacked, Source, consumer_id
from bokiqueue.model.items import GROUP
from bokiqueue.model.limit_rules import KeyRateLimits, RateLimit, share
from bokiqueue.model.old_rules import RewriteTimer
from bokiqueue.model.rebalance_rules import CARRIED, LEFT, NOBODY, careful, fence_name, spares
from bokiqueue.model.receipts import Receipt
from bokiqueue.model.shard_state import Progress
from bokiqueue.own_loop import check_here
from bokiqueue.push.producer import Producer
from bokiqueue.settings import VersionedConfig
from bokiqueue.shard.arrivals import ArrivalReader


class Member(NamedTuple):
    """A member that owns shards.

    Attributes:
        who: its name.
        token: the scope of its claims, which tells members under one `Log` apart.
        carry_ms: the age that none of its needed records reaches.
        only: selects the messages that it delivers; None for all.
        backoff_s: the wait after the first attempt that ended with its process.
    """

    who: str
    token: str
    carry_ms: int = REWRITE_MS
    only: Callable[[Item], bool] | None = None
    backoff_s: float = BACKOFF_S


def members_of(queue: str, group: str) -> str:
    """Return the name under which the members of a group send heartbeats."""
    return f"queue/{queue}/{group}"


DEAD_BYTES: Final = 256 * 1024
"""The most bytes of dead letters in one record; the rest waits for the next record."""


AROUND: Final = 128
ID_BYTES: Final = 16


class DeadLetter:
    """A message that is given up, with its push to the queue of dead letters.

    Attributes:
        failed: the number of failed attempts of the message.
        waiting: callers that wait until the record with this letter is in the log.
    """

    __slots__ = ("failed", "id", "part", "size", "waiting")

    def __init__(self, id: Id, item: Item, part: Contribution | None, more: int = 0, failed: int = 0) -> None:
        """Measure the letter; `more` is the size of its reason, error and stack."""
        self.id = id
        self.failed = failed
        self.part = part
        self.size = len(bytes(item.body)) + more
        self.waiting: list[asyncio.Future[None]] = []


class Outbox:
    """Events to append together, and the callers that wait for that.

    Attributes:
        acks: messages that are finished once the record is in the log.
        nacks: (id, failed attempts, due time).
        letters: dead letters, finished likewise.
    """

    def __init__(self) -> None:
        self.delivered: Final[list[Delivered]] = []
        self.acks: Final[list[Id]] = []
        self.nacks: Final[list[tuple[Id, int, int]]] = []
        self.letters: Final[list[DeadLetter]] = []
        self._waiting: Final[list[asyncio.Future[None]]] = []

    def appended(self, letter: DeadLetter | None = None) -> asyncio.Future[None]:
        """Return a future that is done when the record is in the log. It is the caller's own, who may cancel it, and need not await it.

        Args:
            letter: a dead letter of this outbox to wait for: it may be left for a later record (`overflow`).
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting if letter is None else letter.waiting
        waiting.append(future)
        return future

    def _waiters(self) -> list[asyncio.Future[None]]:
        """Return the futures of all who still wait for this record."""
        waiting = (*self._waiting, *(future for letter in self.letters for future in letter.waiting))
        return [future for future in waiting if not future.done()]

    def succeed(self) -> None:
        """Tell those who wait that the record is in the log."""
        for future in self._waiters():
            future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Tell those who wait why the record is not in the log."""
        for future in self._waiters():
            future.set_exception(error)
            future.exception()  # not awaiting it is no mistake

    def __bool__(self) -> bool:
        return bool(self.delivered or self.acks or self.nacks or self.letters)

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        ids = len(self.acks) + 2 * len(self.nacks) + sum(len(one.held) + len(one.again) + 1 for one in self.delivered)
        return AROUND + ID_BYTES * ids + sum(letter.size + AROUND for letter in self.letters)

    def apart(self) -> list[Outbox]:
        """Divide it into one without letters, and one for each letter, in the order of their appends. None of them is empty."""
        alone = []
        for letter in self.letters:
            box = Outbox()
            box.letters.append(letter)
            alone.append(box)
        self.letters.clear()
        return [self, *alone] if self else alone

    def overflow(self) -> Outbox:
        """Remove and return the dead letters that do not fit one record, with their callers."""
        fit = sum(size <= DEAD_BYTES for size in accumulate(letter.size for letter in self.letters)) or 1
        rest = Outbox()
        rest.letters.extend(self.letters[fit:])
        del self.letters[fit:]
        return rest

    def contribution(self, id: str, tag: str, expect: dict[str, int | None]) -> Contribution:
        """Return the record.

        Args:
            id: the id of the consumer stream.
            tag: the tag of the consumer stream.
            expect: the owner's claim.
        """
        events: list[ConsumerEvent] = list(self.delivered)
        if self.acks:
            events.append(Acked(id, tuple(self.acks)))
        if self.nacks:
            events.append(
                Nacked(
                    id, tuple((nacked.seqnum, nacked.number, attempt, due_ms) for nacked, attempt, due_ms in self.nacks)
                )
            )
        if self.letters:
            events.append(Dead(id, tuple(letter.id for letter in self.letters)))
        parts: Sequence[Contribution] = [letter.part for letter in self.letters if letter.part is not None]
        return Contribution(
            tuple(dict.fromkeys((tag, *(one for part in parts for one in part.tags)))),
            expect,
            (*events, *(event for part in parts for event in part.events)),
        )


UNANSWERED: Final = (
    "the member left before the log said whether it has this decision: if not, another member redelivers the message"
)
TOO_OFTEN: Final = "too many attempts failed"
DIED: Final = "the process ended while this message was alone with it"
NO_FAILURE: Final = Failure()

log = get_logger(__name__)


class Redelivery(NamedTuple):
    """How a message that its handler did not finish is redelivered.

    Attributes:
        delay_ms: the wait before.
        failed: True if the attempt failed.
        error: the error of the attempt.
    """

    delay_ms: int = 0
    failed: bool = False
    error: BaseException | None = None


class OwnerHost(Protocol):
    """The methods of a consumer that its owners need."""

    @property
    def found(self) -> VersionedConfig: ...

    @property
    def dead_letters(self) -> Producer | None: ...

    @property
    def batcher(self) -> AppendBatcher: ...

    def wake(self) -> None: ...

    def deliver(self, owner: ShardOwner, deliveries: list[Delivery]) -> None: ...

    def lost(self, owner: ShardOwner) -> None: ...

    def failed(self, error: Exception) -> None: ...


class ShardOwner:
    """The owner of one shard for one group. See the module.

    Invariant: while `owned`, all unfinished messages between the floor and the last record read are in memory.

    Attributes:
        claim: the first claim of this owner; 0 before it, and after the shard is lost. `fence.claim` is the newest one.
        released: whether the log has the claim for no member with which this owner released the shard.
    """

    def __init__(
        self,
        log: Log,
        shard: int,
        group: str,
        *,
        member: Member,
        host: OwnerHost,
        follower: Follower,
    ) -> None:
        config = host.found.config
        self.queue: Final = config.queue
        self.shard: Final = shard
        self.claim = 0
        name = fence_name(config.queue, shard, group)
        owners = tags.queue_owner(config.queue, shard, group)
        self.fence: Final = Fence(log, owners, name, who=member.who, scope=member.token)
        self._group: Final = group
        self._id: Final = consumer_id(config.queue, shard, group)
        self._tag: Final = tags.queue_consumer(config.queue, shard, group)
        self._log = log
        self._origin: Final = log.origin(f"queue {config.queue!r}")
        self._loop: Final = asyncio.get_running_loop()
        self._scope: Final = member.token
        self._last: Claim | None = None
        """The claim that `take` replaces."""
        self.released = False
        self._host = host
        self._follower = follower
        self._checkpoints = Checkpointing(log, config.queue, shard, group)
        self._clock = LogClock()
        self._share = share(config.limits.in_flight, config.shards, shard)
        self._rate = RateLimit(config.limits.per_second / config.shards, self._now_s())
        self._schedule: DeliverySchedule | None = None
        self._outbox = Outbox()
        self._driver: Final = Driver(self._send_all, "bokiqueue owner")
        self._giving = False
        self._ended: Final = asyncio.Event()  # of all who wait at once: two drains may
        self._arrivals: ArrivalReader | None = None
        self._renewal = RewriteTimer(member.carry_ms)
        self._only = member.only
        self._backoff_s = member.backoff_s
        self._doubts: dict[Receipt, Redelivery] = {}

    # -- the fence

    async def take(self, last: Claim | None) -> None:
        """Claim the shard over `last`, and fold the records of its owners. After an error call it again to resume, or `withdraw`.

        Raises:
            Fenced: another owner was faster.
            BokiError: an append or read failed; the claim may be in the log.
        """
        if not self.fence.claim:
            if last is None or not self.fence.is_mine(last):
                self._last = last
            await self.fence.take(last)
        claim = self.fence.claim
        progress, time_ms = await self._checkpoints.load(claim)
        self._clock.observe(time_ms, self._now_s())
        if spares(self._last, self._scope):
            await self._spare(progress)
        config = self._host.found.config
        keys = KeyRateLimits(config.limits.key_per_second, time_ms, config.key_rates)
        self._schedule = DeliverySchedule(
            self._id,
            progress,
            attempts_most=config.attempts_most,
            careful=self._is_careful,
            group=self._group,
            since_ms=time_ms,
            only=self._only,
            keys=keys,
            dropped=config.dropped,
            backoff_s=self._backoff_s,
            ahead_ms=self._ahead_ms,
        )
        self.claim = claim
        self._begins(config.groups.get(self._group, 0))
        self._renewal.done(time_ms)
        self._arrivals = ArrivalReader(
            self._log, config.queue, self.shard, self._schedule, self._follower, self._came, self._host.failed
        )
        self._arrivals.read_on()
        self._host.wake()

    async def _spare(self, progress: Progress) -> None:
        """Return messages that the owner before delivered with a guard: it did not die, so no attempt failed.

        Raises:
            Fenced: another owner was faster. Errors of appends: the record may be in the log.
        """
        alone = [id for id in sorted(progress.guarded) if progress.is_delivered(id)]
        if not alone:
            return
        back = Nacked(self._id, tuple((id.seqnum, id.number, progress.attempt(id) - 1, 0) for id in alone))
        try:
            seqnum = await self._log.append(Contribution((self._tag,), dict(self.fence.expect), (back,)), settle=True)
        except Conflict as conflict:
            raise self.fence.over() from conflict
        self._checkpoints.appended(seqnum)
        progress.apply(back)

    @property
    def _is_careful(self) -> bool:
        """True if the owner before may have died of a message."""
        return self._last is not None and careful(self._last.who, self._last.token)

    async def withdraw(self, last: Claim | None = None) -> None:
        """Release a shard whose `take` failed or was cancelled: its claim may be in the log.

        If that is unknown the shard is claimed again first; then the earlier claim is found in the log, or can never
        get there.

        Args:
            last: the claim to replace, if `take` was not called.
        """
        self._last = self._last or last

        async def claim() -> None:
            if not self.fence.claim:
                await self.fence.take(self._last)

        try:
            await retried(claim)
        except Fenced:
            return
        await self._append_release()

    @property
    def owned(self) -> bool:
        """True if this is the shard's owner, as far as it knows."""
        return bool(self.claim)

    def is_replaced_by(self, newest: Claim) -> bool:
        """Return True if the claim of another owner replaced this one's, or the one that this one replaces."""
        above = self.fence.claim or (self._last.seqnum if self._last is not None else 0)
        return newest.seqnum > above and not self.fence.is_mine(newest)

    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
        return len(self._schedule.flights) if self._schedule is not None else 0

    @property
    def progress(self) -> Progress:
        """The progress of the group."""
        return self._owned().progress

    def over(self) -> None:
        """End, since the shard has another owner: no decision of this one can happen any more."""
        if not self.claim:
            return
        self.claim = 0
        self._stop_reading()
        self._doubts.clear()
        self._outbox.fail(self.fence.over())
        self._ended.set()
        self._host.lost(self)

    async def give_back(self) -> None:
        """Stop delivering, wait for the messages in flight, and release the shard."""
        self._giving = True
        self._return_prefetched()
        self.expire()
        while self.claim and (self.in_flight or self._driver.busy):
            await self._until_something_ends()
            self.expire()  # before the next look: the last message in flight may go here
        await self.leave()

    async def leave(self) -> None:
        """Release the shard once decisions are in the log; messages in flight are redelivered at once."""
        self._giving = True
        self._return_prefetched()
        while self._driver.busy:
            await self._driver.ended()
        if self.claim:
            await self._append_release()
            self.over()

    async def _append_release(self) -> None:
        """Append that no member owns the shard; retry until the log answers."""
        try:
            await retried(lambda: self._log.append(self._release(), settle=True))
        except Conflict:
            return  # another owner took it already
        self.released = True

    def _release(self) -> Contribution:
        """Return the claim for no member. Messages in flight are redelivered without a failed attempt.

        If messages are left that may have killed an earlier owner, the claim says so to the next one.
        """
        schedule = self._schedule
        suspecting = self._is_careful if schedule is None else schedule.suspecting
        undecided = [] if schedule is None else schedule.undecided()
        scope = LEFT if schedule is None and spares(self._last, self._scope) else CARRIED
        claim = Claimed(self.fence.name, NOBODY, f"{scope}/" if suspecting else "")
        back = tuple((id.seqnum, id.number, failed, 0) for id, failed in undecided)
        if not back:
            return Contribution((self.fence.tag,), dict(self.fence.expect), (claim,))
        return Contribution((self.fence.tag, self._tag), dict(self.fence.expect), (claim, Nacked(self._id, back)))

    def _return_prefetched(self) -> None:
        """Redeliver messages that no handler has yet, without a failed attempt."""
        if not self.claim:
            return
        for id in self._owned().not_begun():
            self._return(id)
        if self._outbox:
            self._driver.wake()

    def _return(self, id: Id) -> None:
        """Queue that a message is redelivered at once, without a failed attempt."""
        schedule = self._owned()
        self._outbox.nacks.append((id, schedule.flights[id].attempt - 1, 0))
        schedule.pin(id)

    async def _until_something_ends(self) -> None:
        """Wait until a decision is in the log, or a lease runs out."""
        if self._driver.busy:
            await self._driver.ended()
            return
        self._ended.clear()
        deadline_s = self._owned().next_deadline_s()
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._ended.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Stop at once. The claim stays until another member takes the shard.

        Callers that wait for a record on its way get OutcomeUnknown; those of later decisions get Fenced.
        """
        self._stop_reading()
        try:
            await self._driver.close()
        finally:
            self.claim = 0
            self._outbox.fail(self.fence.over())
            self._ended.set()

    # -- reading messages

    def _stop_reading(self) -> None:
        if self._arrivals is not None:
            self._arrivals.close()

    def _read_on(self) -> None:
        if self._arrivals is not None:
            self._arrivals.read_on()

    def _came(self, record: boki.Record | None) -> None:
        if record is not None:
            self._clock.observe(record.time_ms, self._now_s())
            self._checkpoints.read(len(record.data))
        self._host.wake()

    # -- delivering messages

    @property
    def _delivers(self) -> bool:
        return bool(self.claim) and not (self._giving or self._checkpoints.first or self._host.found.config.paused)

    def _room(self, now_s: float) -> int:
        return min(self._share - self.in_flight, self._rate.allowed(now_s))

    def take_deliveries(self, most: int, now_s: float) -> list[Delivery]:
        """Return messages for handlers; those that have to wait for their DELIVER come through `deliver`."""
        if not self._delivers or not self._owned().has_waiting:
            return []
        room = min(most, self._room(now_s))
        return self._send_batch(self._owned().take(room, self._clock.now_ms(now_s)), now_s) if room > 0 else []

    def wants_alone(self, now_s: float) -> bool:
        """Return True if a message may be delivered only while the member has no other."""
        if not self._delivers or not self._owned().has_lone:
            return False
        return self._room(now_s) > 0 and self._owned().wants_alone(self._clock.now_ms(now_s))

    def take_delivery_alone(self, now_s: float) -> list[Delivery]:
        """Return one such message, as `take_deliveries` does."""
        return self._send_batch(self._owned().take_alone(self._clock.now_ms(now_s)), now_s)

    def by_itself(self) -> None:
        """Record that the message just delivered is the only one of the member."""
        schedule, delivered = self._owned(), self._outbox.delivered
        if delivered:
            delivered[-1] = schedule.by_itself(delivered[-1])

    def accompanied(self) -> None:
        """Record that the member has other messages in flight, so that a message of this owner is not by itself any more."""
        delivered = self._owned().accompanied()
        if delivered is not None:
            self._outbox.delivered.append(delivered)
            self._driver.wake()

    def postpone_alone(self, now_s: float) -> None:
        """Let messages that are delivered alone wait: the member has others that do not end."""
        self._owned().postpone_alone(self._clock.now_ms(now_s))

    def _send_batch(self, batch: DeliveryBatch, now_s: float) -> list[Delivery]:
        for delivery in batch.dead:
            died = self._owned().progress.guarded.get(delivery.entry.id) is not None
            self._give_up(delivery, TOO_OFTEN, Failure(DIED if died else ""))
        if batch.delivered is None:
            return []
        self._rate.take(len(batch.deliveries), now_s)
        self._outbox.delivered.append(batch.delivered)
        self._driver.wake()
        if not batch.logged_first:
            return batch.deliveries
        self._outbox.appended().add_done_callback(lambda done: self._delivered(batch, done))
        return []

    def _delivered(self, batch: DeliveryBatch, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._host.deliver(self, batch.deliveries)

    def _give_up(self, delivery: Delivery, reason: str, failure: Failure = NO_FAILURE) -> DeadLetter:
        """Queue a dead letter, and return it; in a queue without dead letters the message is dropped."""
        id, item = delivery.entry.id, delivery.entry.item
        producer, part = self._host.dead_letters, None
        if producer is not None:
            source = self._origin_of(id, item)
            source = msgspec.structs.replace(
                source, attempts=delivery.attempt, reason=reason, error=failure.error, stack=failure.stack
            )
            part = producer.part([Item(item.body, item.key, None, 0, source, item.priority)])
        else:
            facts = self.log_facts(id, item.key)
            log.warning("message given up: the queue has no dead letters, it is dropped", **facts, reason=reason)
        words = len(reason) + len(failure.error) + len(failure.stack)
        letter = DeadLetter(id, item, part, words, delivery.attempt)
        self._outbox.letters.append(letter)
        self._driver.wake()
        return letter

    def _origin_of(self, id: Id, item: Item) -> Source:
        """Return the place to which a message goes back if it is given up here.

        A letter that fails again keeps its first origin. In other groups than the one that is redriven it is a copy, which goes back
        to that group of the queue of letters: its first origin would get it twice.
        """
        if item.source is not None and self._group == GROUP:
            return item.source
        return Source(self.queue, self.shard, id.seqnum, id.number, 0, "", group=self._group)

    def begin(self, receipt: Receipt, lease_s: float) -> bool:
        """Start the lease of a message that a handler gets now. Return False if the handler must not have it."""
        if not self.claim or self.claim != receipt.claim or self._owned().number(receipt.id) != receipt.number:
            return False
        self._owned().begin(receipt.id, self._now_s() + lease_s)
        return True

    def next_s(self, now_s: float) -> float | None:
        """Return the time after `now_s` at which a lease runs out, a message becomes due or the rate allows one, or None.

        Messages that were due before and are not delivered wait for something else.
        """
        if not self.claim:
            return None
        schedule = self._owned()
        times = [schedule.next_deadline_s()]
        due_ms = schedule.next_due_ms()
        if due_ms is not None:
            times.append(self._clock.when_s(due_ms, now_s))
        if len(schedule) > self.in_flight and not self._rate.allowed(now_s):
            times.append(self._rate.next_s(now_s))
        return min((time for time in times if time is not None and time > now_s), default=None)

    def configured(self, start: int) -> None:
        """Apply new settings: limits, dropped records, and the group's start, below which messages are finished unless in flight."""
        if self.claim:
            self._owned().attempts_most = self._host.found.config.attempts_most
            self._owned().drop(self._host.found.config.dropped)
            self._begins(start)
            self._limit(self._host.found.config)
            self._read_on()

    def _begins(self, start: int) -> None:
        """Finish messages below the group's start unless in flight. It is no news if it is the start of the state that was read."""
        self._owned().purge(start)
        self._checkpoints.begins(start, self._owned().progress)
        if self._checkpoints.first:
            self._driver.wake()

    def _limit(self, config: Config) -> None:
        """Apply the limits of the settings."""
        self._owned().rates(config.key_rates, config.limits.key_per_second)
        self._share = share(config.limits.in_flight, config.shards, self.shard)
        per_second = config.limits.per_second / config.shards
        if per_second != self._rate.per_second:
            self._rate = RateLimit(per_second, self._now_s())

    def expire(self, now_s: float | None = None) -> None:
        """Redeliver messages whose lease ran out. `now_s` is the time of the caller's look, by default now.

        A guarded one is redelivered once the log says so: otherwise the next owner would count a death of this process,
        or the release of its shard, as one of the message.
        """
        if not self.claim:
            return
        schedule = self._owned()
        for id in schedule.expired(self._now_s() if now_s is None else now_s):
            if id in schedule.progress.guarded:
                self._return(id)
                self._driver.wake()
            else:
                schedule.expires(id)
                self._one_ended()

    def log_facts(self, id: Id, key: str | None) -> dict[str, object]:
        """Return the facts by which a log line names a message: `boki queue peek` prints the same ones."""
        named = {"queue": self.queue, "group": self._group, "shard": self.shard, "message": str(id)}
        return named if key is None else {**named, "key": key}

    # -- decisions of handlers

    def check_here(self) -> None:
        """Check that this owner's event loop runs here; raises as `own_loop.check_here`."""
        check_here(self._loop)

    def check(self, receipt: Receipt) -> None:
        """Check that a receipt is good.

        Raises:
            StaleReceipt: it is not.
            WrongLoop: another event loop runs here.
        """
        self.check_here()
        self.expire()
        receipts.check(receipt, self.claim, self._owned().number(receipt.id) if self.claim else None)

    def ack(self, receipt: Receipt) -> asyncio.Future[None]:
        """Finish a message.

        Raises:
            StaleReceipt: at once; the receipt is not good.
            Fenced: when awaited; the shard has another owner, and the message is not finished.
            OutcomeUnknown: when awaited; this owner was closed before the log answered.
        """
        self.check(receipt)
        self._owned().pin(receipt.id)
        self._outbox.acks.append(receipt.id)
        self._driver.wake()
        return self._outbox.appended()

    def nack(self, receipt: Receipt, lost: Redelivery) -> asyncio.Future[None]:
        """Redeliver a message, or give it up after too many failed attempts. Raises as `ack`."""
        self.check(receipt)
        self._owned().pin(receipt.id)
        return self._outbox.appended(self._redeliver(receipt.id, lost))

    def _redeliver(self, id: Id, lost: Redelivery) -> DeadLetter | None:
        """Redeliver a pinned message, or give it up and return its dead letter."""
        schedule = self._owned()
        attempt = schedule.flights[id].attempt
        if self._is_last(id, lost):
            entry = schedule.entries[id]
            failure = failure_of(lost.error, memoryview(entry.item.body).nbytes)
            return self._give_up(Delivery(entry, attempt, 0), TOO_OFTEN, failure)
        due_ms = self._log.now_ms() + lost.delay_ms if lost.delay_ms else 0
        self._outbox.nacks.append((id, attempt if lost.failed else attempt - 1, due_ms))
        self._driver.wake()
        return None

    def _is_last(self, id: Id, lost: Redelivery) -> bool:
        schedule = self._owned()
        return lost.failed and 0 < schedule.attempts_most <= schedule.flights[id].attempt

    def gives_up(self, receipt: Receipt, lost: Redelivery) -> bool:
        """Return True if releasing a message in this way gives it up.

        Raises:
            StaleReceipt: the receipt is not good.
        """
        self.check(receipt)
        return self._is_last(receipt.id, lost)

    def give_up(self, receipt: Receipt, reason: str) -> asyncio.Future[None]:
        """Make a message a dead letter. Raises as `ack`."""
        self.check(receipt)
        schedule = self._owned()
        schedule.pin(receipt.id)
        delivery = Delivery(schedule.entries[receipt.id], schedule.flights[receipt.id].attempt, 0)
        return self._outbox.appended(self._give_up(delivery, reason))

    def extend(self, receipt: Receipt, lease_s: float) -> None:
        """Give the handler of a message `lease_s` seconds from now on.

        Raises:
            StaleReceipt: the receipt is not good.
        """
        self.check(receipt)
        self._owned().begin(receipt.id, self._now_s() + lease_s)

    def ack_part(self, receipt: Receipt) -> Contribution:
        """Return the contribution that makes a record the ACK of a message, which is pinned until `decided`.

        Raises:
            StaleReceipt: the receipt is not good.
        """
        if receipt in self._doubts:
            receipts.check(receipt, self.claim, None)
        if not self._checkpoints.is_flying(receipt):
            self.check(receipt)
            self._owned().pin(receipt.id)
            self._checkpoints.flies(receipt)
        elif self.claim != receipt.claim:
            receipts.check(receipt, self.claim, None)
        return Contribution((self._tag,), dict(self.fence.expect), (Acked(self._id, (receipt.id,)),), self._origin)

    async def is_acked(self, receipt: Receipt) -> bool | None:
        """Return True if the log has the ACK of an `ack_part`; None if not yet, or never."""
        start = self._checkpoints.flying_since(receipt) + 1
        found = await stream(self._log, self._id, self._tag, await self._log.book.now(), start)
        acked = any(receipt.id in event.ids for row in found.rows for event in row.events if isinstance(event, Acked))
        return True if acked else None

    def decided(self, receipt: Receipt, *, happened: bool) -> None:
        """Note the outcome of a record with an `ack_part`."""
        self._checkpoints.landed(receipt)
        if self.claim != receipt.claim:
            return
        if happened:
            self._owned().over(receipt.id)
            self._one_ended()
        else:
            self._owned().unpin(receipt.id)
            self._host.wake()
            self._ended.set()  # its lease runs again

    def doubt(self, receipt: Receipt, lost: Redelivery) -> None:
        """Find out from the log the outcome of a record with an `ack_part`. `lost` applies if the record is not there."""
        if self.claim != receipt.claim:
            self._checkpoints.landed(receipt)  # the next owner finds out
            return
        self._doubts[receipt] = lost
        self._driver.wake()

    # -- appending

    async def _send_all(self) -> None:
        try:
            while (self._outbox or self._renewal.due or self._checkpoints.first or self._doubts) and self.claim:
                if self._renewal.due or self._doubts:
                    await self._claim_again()
                    continue
                if self._outbox:
                    box, self._outbox = self._outbox, self._outbox.overflow()
                    await self._append(box)
                known = self._host.found.seqnum
                if self.claim and self._checkpoints.due:
                    await self._checkpoint()
                if self._checkpoints.first and not self._outbox and known == self._host.found.seqnum:
                    break  # the settings changed: `configured` follows
        except Exception as error:
            self._log_end(error)
            self.over()
            raise

    def _log_end(self, error: Exception) -> None:
        log.error(
            "owner of a shard ended: it appends nothing more, another member takes the shard",
            queue=self.queue,
            group=self._group,
            shard=self.shard,
            error=error,
        )

    async def _append(self, box: Outbox) -> None:
        one, batcher = box.contribution(self._id, self._tag, self.fence.expect), self._host.batcher

        async def append() -> Placed:
            try:
                return await batcher.append(one, size=box.size, seen=self._checkpoints.high)
            except asyncio.CancelledError:  # by `close`
                box.fail(OutcomeUnknown(UNANSWERED, queue=self.queue, shard=self.shard))
                raise

        try:
            placed = await retried(append)
        except Conflict:
            box.fail(self.fence.over())
            self.over()
            return
        except (AtomicTooLarge, PayloadHookFailed) as refused:  # before anything was sent
            if not box.letters:
                box.fail(refused)
                raise
            await self._append_apart(box, refused)
            return
        except Exception as error:
            if box.letters and not encodable(one.events):
                await self._append_apart(box, error)
                return
            box.fail(error)  # also for a defect: none of its callers waits without end
            raise
        except asyncio.CancelledError:
            box.fail(self.fence.over())  # during a pause: no attempt is under way, else its callers have their error
            raise
        self._checkpoints.appended(placed.seqnum)
        if not self.claim:  # lost while the answer was on its way; the next owner reads this record
            box.succeed()
            return
        schedule = self._owned()
        for id in box.acks:
            schedule.over(id)
        for letter in box.letters:
            schedule.over(letter.id)
        for id, attempt, due_ms in box.nacks:
            schedule.again(id, attempt, due_ms)
        box.succeed()
        self._one_ended()

    async def _append_apart(self, box: Outbox, refused: Exception) -> None:
        """Append the parts of a record that was refused before it was sent, so that one letter holds up no other decision."""
        parts = box.apart()
        if len(parts) == 1:
            self._keep(parts[0], refused)
            return
        while parts:
            part = parts.pop(0)
            try:
                await self._append(part)
            except BaseException:
                for other in parts:
                    other.fail(self.fence.over())
                raise

    def _keep(self, box: Outbox, refused: Exception) -> None:
        """Redeliver the message of a letter that cannot be appended, later: it stays in its queue."""
        (letter,) = box.letters
        log.error(
            "dead letter not appended: its message stays in its queue, and is redelivered",
            **self.log_facts(letter.id, None),
            error=refused,
        )
        due_ms = self._log.now_ms() + round(BACKOFF_MOST_S * 1_000)
        self._outbox.nacks.append((letter.id, letter.failed, due_ms))
        box.fail(refused)

    def _one_ended(self) -> None:
        self._read_on()
        self._ended.set()
        self._host.wake()

    def tend(self) -> None:
        """Rewrite this owner's records when they are half as old as allowed, so that an old claim has no living owner."""
        if self.claim and not self._giving and self._renewal.look(self._clock.now_ms(self._now_s())):
            self._driver.wake()

    async def _claim_again(self) -> None:
        """Append the same claim again, so that no record that expects the former one can follow. Receipts name the first claim."""
        carries, doubts = self._renewal.due, dict(self._doubts)
        self._renewal.done(self._clock.now_ms(self._now_s()))

        async def claim_again() -> None:
            if self.claim:
                claim = await self.fence.take(self.fence.held)
                await self._log.book.trim([(self.fence.tag, claim)])
                await self._settle(doubts, claim)

        try:
            await retried(claim_again)
        except Fenced:
            self.over()
        if self.claim and carries:
            await self._checkpoint()

    async def _settle(self, doubts: Mapping[Receipt, Redelivery], claim: int) -> None:
        """Settle records that expected a claim before this one: their ACKs are in the log by now, or never will be."""
        if not doubts:
            return
        start = min(self._checkpoints.flying_since(receipt) for receipt in doubts) + 1
        found = await stream(self._log, self._id, self._tag, claim, start)
        if found.trimmed >= start:  # the group was dropped, and what it did is trimmed: an ACK may have been there
            self.over()
            return
        acked = {id for row in found.rows for event in row.events if isinstance(event, Acked) for id in event.ids}
        for receipt, lost in doubts.items():
            self._doubts.pop(receipt, None)
            self._checkpoints.landed(receipt)
            if not self.claim:
                continue
            if receipt.id in acked:
                self._owned().over(receipt.id)
                self._one_ended()
            else:
                self._redeliver(receipt.id, lost)

    async def _checkpoint(self) -> None:
        schedule = self._owned()
        schedule.raise_floor()
        try:
            await self._checkpoints.make(schedule.progress, self.fence, self._host.found)
        except Conflict as conflict:
            if self.fence.moved(conflict):
                self.over()
            return  # the settings changed: the next checkpoint expects the new ones
        await self._checkpoints.trim()
        self._host.wake()

    def _owned(self) -> DeliverySchedule:
        assert self._schedule is not None, "nothing was claimed: `await owner.take(...)`"
        return self._schedule

    def _ahead_ms(self) -> int:
        """Return by how much this owner's clock is ahead of the log's, which the member's heartbeats set back while it stands still."""
        now_s, log_ms = self._now_s(), self._log.now_ms()
        self._clock.observe(log_ms, now_s)
        return self._clock.now_ms(now_s) - log_ms

    def _now_s(self) -> float:
        return self._loop.time()
