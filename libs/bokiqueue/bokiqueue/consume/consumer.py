"""A member of a group of consumers: it owns its part of the shards and delivers their messages.

    async with queue.consume(group="mailer") as messages:
        async for message in messages:
            async with message: ...

- Any number of tasks may iterate; each message goes to one of them. At most `prefetch` messages are with these tasks or
  wait for them.
- Heartbeats tell which members are alive (`Members`); the log tells which member owns a shard. Shards are dealt in turn,
  and dealt again when members come and go (`bokilib.partitions`). The fence of a shard is for all records of its owner.
  So a member takes shards of no member and of dead ones, and a living owner releases those that another should have: it
  stops delivering, waits for the messages in flight, and appends a claim for no member. No message is delivered twice.
- A member whose heartbeats do not arrive stops delivering before others take its shards, and its handlers are cancelled
  (`_guard`), also while it waits for the log, during a drain, and after an error that ended it.
- A stop that has begun continues though its caller is cancelled: a drain (`_drained`), and the end of the block (`_leave`).
  Otherwise others would wait for shards of a member that beats and takes no messages.
- However the block ends, the heartbeats and all tasks end (`_end`): a member that beats keeps its shards from others.
- A message that is delivered while the member has no other is marked so until the member has a second one: if the
  process dies in between, the attempt failed.
- A message that may have killed a process twice is delivered alone (`delivery_rules`). The member first waits until its
  handlers have no other message, for a lease at most, and delivers no other beside it, for a lease at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import boki
from boki_common.background_tasks import leave_behind
from boki_common.errors import BokiError, ClosedError, InvalidArgument, UsageError
from boki_common.logs import NAMED, get_logger
from bokilib.append.batcher import AppendBatcher
from bokilib.append.fence import PICKER as CLAIMS
from bokilib.append.log import Log, Read
from bokilib.errors import Fenced
from bokilib.follow import lease_rules
from bokilib.follow.follower import Follower
from bokilib.follow.lease_rules import LEAVE_S
from bokilib.follow.members import Members
from bokilib.partitions.assignment import NOBODY, Standing, in_turn, moves
from bokilib.partitions.claims import NewestClaims, Picked
from bokilib.partitions.rounds import Rounds
from bokilib.records import tags
from bokilib.records.arguments import check_lease, check_seconds
from bokilib.records.conflict_rules import Claim, scope_of
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokilib.stacks import described
from bokiqueue.attempts import BACKOFF_S
from bokiqueue.consume.messages import LEASE_MOST_S, Message
from bokiqueue.errors import NoSuchQueue, NotEntered
from bokiqueue.model.delivery_rules import CAREFUL, Delivery
from bokiqueue.model.events import PICKER, Config, Item
from bokiqueue.model.rebalance_rules import fence_name, holder_of
from bokiqueue.model.receipts import Receipt
from bokiqueue.own_loop import check_here
from bokiqueue.push import strays
from bokiqueue.push.producer import Producer
from bokiqueue.settings import VersionedConfig, no_such_group, replaced_queue
from bokiqueue.shard.shard_owner import Member, ShardOwner, members_of

T = TypeVar("T")

PREFETCH: Final = 64
LEASE_S: Final = 30.0
FINISH_S: Final = 30.0
STRAYS_S: Final = 15.0
"""The time between looks for messages in streams of shards that the queue does not have."""

log = get_logger(__name__)


def check_prefetch(prefetch: int) -> int:
    """Return a prefetch; raise InvalidArgument if it is out of range."""
    if type(prefetch) is not int or not 1 <= prefetch <= CAREFUL:
        raise InvalidArgument(f"expected a prefetch of 1 to {CAREFUL} messages, found {prefetch!r}", found=prefetch)
    return prefetch


def shard_claims(opened: Log, config: Config, group: str) -> NewestClaims[None]:
    """Return the newest claims of a group's shards."""
    queue, shards = config.queue, range(config.shards)
    numbers = {fence_name(queue, shard, group): shard for shard in shards}

    def pick(read: Read) -> Iterable[Picked[None]]:
        for event in CLAIMS.of(read.record.seqnum, read.envelope):
            if event.fence in numbers:
                yield Picked(numbers[event.fence], event.who, event.token)

    return NewestClaims(opened, [tags.queue_owner(queue, shard, group) for shard in shards], pick)


class MemberLimits(NamedTuple):
    """Limits of a member.

    Attributes:
        prefetch: messages that handlers have or that wait for them.
        lease_s: the time a handler has for a message.
    """

    prefetch: int
    lease_s: float


class Consumer(Generic[T]):
    """A member of a group of consumers. See the module.

    Attributes:
        batcher: the batcher of its shards' appends.
        origin: the origin of the ACKs of its messages.
    """

    _strays_s = 0.0  # the time at which strays are looked for next
    _turn = 0

    def __init__(
        self,
        opened: Log,
        found: VersionedConfig,
        kind: type[T],
        group: str,
        *,
        who: str,
        prefetch: int,
        lease_s: float,
        member_lease_s: float,
        dead_letters: Callable[[str], Producer],
        carry_ms: int = REWRITE_MS,
        only: Callable[[Item], bool] | None = None,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self.found = found
        self._producers = dead_letters
        self._letters: tuple[str, Producer] | None = None
        self.batcher: Final = AppendBatcher(opened, "bokiqueue batcher", settle=True)
        self._log = opened
        self.origin: Final = opened.origin(f"queue {found.config.queue!r}")
        self._member = Member(who, opened.incarnations.new_token(), carry_ms, only, backoff_s)
        self._kind = kind
        self._group = group
        self._limits = MemberLimits(check_prefetch(prefetch), check_lease(lease_s, LEASE_MOST_S))
        self._members = Members(
            opened, members_of(found.config.queue, group), who, lease_s=member_lease_s, changed=self._members_changed
        )
        self._rounds = Rounds(member_lease_s, self._members.silent_in, lambda seen_s, still_s: None)
        self._guard_rounds = Rounds(
            member_lease_s,
            self._members.silent_in,
            self._warn_of_late_loop,
            every_s=lease_rules.beat_every(member_lease_s) / 2,  # so that handlers are cancelled soon after the lease
        )
        self._follower = Follower(opened, self._members.fail)
        self._claims = shard_claims(opened, found.config, group)
        self._owners: dict[int, ShardOwner] = {}
        self._taking: dict[int, ShardOwner] = {}
        """Owners whose `take` has not returned: their claim may be in the log."""
        self._not_released: dict[int, None] = {}
        """Shards that this member had, and neither released nor took again."""
        self._ready: deque[tuple[ShardOwner, Delivery]] = deque()
        self._failed: Exception | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that entered this consumer."""
        self._entered = False
        """True until all tasks of this member have ended."""
        self._member_now = False
        """True from the beginning of the block to its end."""
        self._tasks: list[asyncio.Task[None]] = []
        self._guarding: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[list[BaseException]] | None = None  # the end of the block
        self._ending: asyncio.Task[None] | None = None
        self._left_drains: set[asyncio.Task[bool]] = set()
        """Drains under way whose callers were cancelled."""
        self._giving: dict[int, asyncio.Task[None]] = {}
        self._draining = False
        self._leaves = False
        self._quiet_until_s = 0.0
        """The time until which no other message is delivered because of one that is delivered alone; 0 if there is none."""
        self._alone: ShardOwner | None = None
        """The owner of the message that is delivered alone."""
        self._handling: dict[asyncio.Task[None], Message[T]] = {}
        """Tasks of handlers, each with its message."""
        self._made = found.config.shards, found.config.mode
        self._rival = ""
        """The incarnation of another member with this name, known from the log."""

    # -- lifecycle

    async def __aenter__(self) -> Consumer[T]:
        """Become a member of the group. A consumer that was left may be entered again.

        Raises:
            UsageError: it is entered, or has not ended since it was left.
        """
        check_here(None)
        if self._entered:
            raise UsageError(
                f"consumer {self.who!r} of queue {self.found.config.queue!r} is entered already: nothing was done; leave it first,"
                " or make another one"
            )
        self._entered = self._member_now = True
        self._loop = asyncio.get_running_loop()
        self._draining = self._leaves = False
        self._failed = self._alone = None
        self._quiet_until_s = 0.0
        try:
            await self._claims.read()
            for fence in self._claims.fences:
                self._follower.add(fence, self._claims.read_at + 1, self._saw_claim)
            self._follower.add(tags.queue_config(self.found.config.queue), self.found.seqnum + 1, self._configured)
            await self._members.__aenter__()
        except BaseException:
            self._member_now = False
            await self._end()
            raise
        self._log.incarnations.start(self._member.token)
        self._rounds.wake()
        self._tasks = [self._loop.create_task(self._balance(), name="bokiqueue balance")]
        guard = self._guard_rounds.run(self._guard, _raise)
        self._guarding = self._loop.create_task(guard, name="bokiqueue guard")
        self._guarding.add_done_callback(self._guard_ended)
        return self

    def _check_made(self) -> None:
        """Check that the queue is the one whose shards this member follows. Raises NoSuchQueue."""
        config = self.found.config
        if (config.shards, config.mode) != self._made:
            raise replaced_queue(config)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the shards, so that other members redeliver at once what is in flight.

        If the log does not answer within `LEAVE_S`, redelivery waits for the member's lease. The end continues if the caller is cancelled.
        """
        check_here(self._loop)
        if not self._entered:
            return
        self._member_now = False
        self.wake()
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(), name="bokiqueue leaves")
        failed = await asyncio.shield(self._leaving)
        if failed and error is None:
            raise failed[0]

    async def _leave(self) -> list[BaseException]:
        """Release the shards and end all tasks. Return the errors of shards that were not released."""
        tasks = [*self._tasks, *self._giving.values()]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ready.clear()
            return await self._release_shards()
        finally:
            await self._end()

    async def _end(self) -> None:
        """End the heartbeats and all tasks of this member, also if the caller is cancelled while it waits for that."""
        self._log.incarnations.stop(self._member.token)
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end_tasks(), name="bokiqueue ends")
        await asyncio.shield(self._ending)

    async def _end_tasks(self) -> None:
        tasks = [*self._tasks, *self._giving.values()]
        if self._guarding is not None:
            tasks.append(self._guarding)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(self._members.__aexit__(None, None, None), *tasks, return_exceptions=True)
            for owner in list(self._owners.values()):
                await owner.close()
            await self._follower.__aexit__(None, None, None)
            for drain in self._left_drains:
                drain.cancel()
            await asyncio.gather(*self._left_drains, return_exceptions=True)
        finally:
            self._owners.clear()
            self._taking.clear()
            self._ready.clear()
            self._leaving = self._ending = None
            self._entered = False
            self.wake()

    async def drain(self, finish_s: float = FINISH_S) -> bool:
        """Take no new messages, let handlers finish those they have, and release the shards: for a stop or a deploy.

        Other members take a shard as soon as no handler here has a message of it. Iteration ends. Messages that wait in
        the prefetch or are not finished in time are redelivered by other members, without a failed attempt.

        The drain continues if this call is cancelled, until the block ends.

        Args:
            finish_s: the seconds that handlers have.

        Returns:
            True if all handlers finished.

        Raises:
            InvalidArgument: `finish_s` is negative or infinite.
        """
        check_seconds("a time to finish in", finish_s)
        check_here(self._loop)
        if not self._member_now:
            return not any(owner.in_flight for owner in self._owners.values())
        self._draining = True
        self._ready.clear()
        self.wake()
        drain = asyncio.get_running_loop().create_task(self._drained(finish_s), name="bokiqueue drain")
        try:
            return await asyncio.shield(drain)
        except asyncio.CancelledError:
            self._left_drains.add(drain)
            drain.add_done_callback(self._left_drains.discard)
            raise

    async def _drained(self, finish_s: float) -> bool:
        """Tell the other members that this one leaves, and release the shards. Return True if all handlers finished."""
        ends = [*self._tasks, *self._giving.values()]
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        saying = asyncio.get_running_loop().create_task(self._announce_leaving(), name="bokiqueue leaves")
        try:
            return await self._finish(finish_s)
        finally:
            await saying

    async def _finish(self, finish_s: float) -> bool:
        """Release each shard when its handlers finish, and all others after `finish_s`. Return True if all handlers finished."""
        owners = [owner for owner in self._owners.values() if owner.owned]
        works = [*(owner.give_back() for owner in owners), *map(self._withdraw, self._taking)]
        failed = await _within(works, finish_s)
        finished = not any(owner.in_flight for owner in owners if owner.owned)
        if self._member_now:  # else the end of the block releases them
            failed += await self._release_shards()
        if failed:
            raise failed[0]
        return finished

    async def _withdraw(self, shard: int) -> None:
        """Release a shard whose take was under way. A drain and the end of the block may do so at the same time."""
        owner = self._taking.get(shard)
        if owner is not None:
            await owner.withdraw()
            self._taking.pop(shard, None)

    async def _release_shards(self) -> list[BaseException]:
        """Release all owned and possibly claimed shards, within `LEAVE_S`. Return the errors of those that were not released."""
        shards = sorted({*self._owners, *self._taking})
        works = [*(owner.leave() for owner in self._owners.values()), *map(self._withdraw, self._taking)]
        failed = await _within([self._announce_leaving(), *works], LEAVE_S)
        if self._not_released and not failed and self._failed is None:
            failed = await _within([self._release_carried()], LEAVE_S)
        if kept := [shard for shard in shards if shard in self._owners or shard in self._taking]:
            log.warning(
                "member leaves: shards not released, others take them after a lease",
                queue=self.found.config.queue,
                who=self.who,
                shards=kept,
                error=described(failed[0]) if failed else f"the log did not answer for {LEAVE_S} s",
            )
        return failed

    async def _release_carried(self) -> None:
        """Release shards that a carrier claimed: else the others would take the silence of this member for a death."""
        await self._claims.read()
        for shard in list(self._not_released):
            claim = self._claims.newest[shard]
            if claim is not None and holder_of(claim).scope == self._member.token:
                await self._owner_of(shard).withdraw(claim)
            self._not_released.pop(shard, None)

    async def _announce_leaving(self) -> None:
        """Tell the other members to deal no more shards to this one, unless the log has it already."""
        if self._failed is not None or self._leaves or not self._entered:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._members.leave()
            self._leaves = True
        except (BokiError, TimeoutError) as error:
            log.warning(
                "member leaves: heartbeat not appended, others take its shards after a lease",
                queue=self.found.config.queue,
                who=self.who,
                error=described(error),
            )

    @property
    def who(self) -> str:
        """The name of this member in the log."""
        return self._member.who

    @property
    def shards(self) -> list[int]:
        """The shards that this member owns."""
        return sorted(shard for shard, owner in self._owners.items() if owner.owned)

    async def has(self, count: int) -> None:
        """Wait until this member owns `count` shards.

        Raises:
            ClosedError: the consumer was drained or left, so that it takes no more shards.
            BokiError: the error that ended this member.
        """
        check_here(self._loop)
        while len(self.shards) != count:
            if self._failed is not None:
                raise self._failed
            ends = self._draining or not self._member_now
            if ends and (len(self.shards) < count or not self._entered):  # else it still releases some
                raise ClosedError(
                    f"consumer {self.who!r} of queue {self.found.config.queue!r} is not entered, or was drained: expected {count} shards,"
                    f" it has {len(self.shards)} and takes no more",
                    expected=count,
                    found=len(self.shards),
                )
            self._wake.clear()
            await self._wake.wait()

    # -- messages

    def __aiter__(self) -> Consumer[T]:
        return self

    async def __anext__(self) -> Message[T]:
        """Wait for the next message. Iteration ends when the consumer is drained or left.

        Raises:
            NotEntered: the consumer was never entered.
            BokiError: the error that ended this member.
        """
        check_here(self._loop)
        if self._loop is None:
            raise NotEntered(
                f"consumer {self.who!r} of queue {self.found.config.queue!r} is not entered: write `async with` around the iteration"
            )
        while True:
            if self._failed is not None:
                raise self._failed
            if self._draining or not self._member_now:
                raise StopAsyncIteration
            self._wake.clear()
            now_s = asyncio.get_running_loop().time()
            message = self._next(now_s)
            if message is not None:
                return message
            await self._wait(now_s)

    def _next(self, now_s: float | None = None) -> Message[T] | None:
        """Return a message to handle, or None. One time decides everything in a look.

        With two times a message could become due between them: too late to be delivered, and too early for a timer to
        be set.
        """
        if not self._members.may_act():
            return None
        if now_s is None:
            now_s = asyncio.get_running_loop().time()
        if not self._ready:  # leases are checked when there is room, not for each message
            for owner in self._owners.values():
                owner.expire(now_s)
            self._fill(now_s)
        while self._ready:
            owner, delivery = self._ready.popleft()
            receipt = Receipt(owner.shard, owner.claim, delivery.entry.id, delivery.number)
            if owner.begin(receipt, self._limits.lease_s):
                return Message(owner, receipt, delivery, self._kind)
        return None

    def renew(self, message: Message[T]) -> None:
        """Pass a message to another handler of this member, with a whole lease.

        Raises:
            StaleReceipt: the message is not this member's any more.
        """
        message.extend(self._limits.lease_s)

    def _fill(self, now_s: float) -> None:
        """Take messages of the shards in turn."""
        owners = [owner for owner in self._owners.values() if owner.owned]
        if self._is_quiet(owners, now_s):
            return
        busy = sum(owner.in_flight for owner in owners)
        room = self._limits.prefetch - busy
        for number in range(len(owners)):
            owner = owners[(self._turn + number) % len(owners)]
            if room <= 0:
                break
            before = owner.in_flight
            self._ready.extend((owner, delivery) for delivery in owner.take_deliveries(room, now_s))
            room -= owner.in_flight - before
        self._turn += 1
        in_flight = self._limits.prefetch - room
        if in_flight > 1:
            for owner in owners:
                owner.accompanied()
        elif in_flight > busy:
            next(owner for owner in owners if owner.in_flight).by_itself()

    def _is_quiet(self, owners: list[ShardOwner], now_s: float) -> bool:
        """Return True if only a message that is delivered alone may be delivered now; deliver it if possible."""
        if self._alone is not None:
            if self._alone.in_flight and now_s < self._quiet_until_s:
                return True
            self._alone, self._quiet_until_s = None, 0.0
        wanting = [owner for owner in owners if owner.wants_alone(now_s)]
        if not wanting:
            self._quiet_until_s = 0.0
            return False
        self._quiet_until_s = self._quiet_until_s or now_s + self._limits.lease_s
        if not any(owner.in_flight for owner in owners):
            self._alone, self._quiet_until_s = wanting[0], now_s + self._limits.lease_s
            self._ready.extend((wanting[0], delivery) for delivery in wanting[0].take_delivery_alone(now_s))
            return True
        if now_s < self._quiet_until_s:
            return True
        for owner in wanting:
            owner.postpone_alone(now_s)
        self._quiet_until_s = 0.0
        return False

    async def _wait(self, looked_s: float) -> None:
        """Wait until something may have changed since `looked_s`."""
        times = [owner.next_s(looked_s) for owner in self._owners.values()]
        if self._quiet_until_s > looked_s:
            times.append(self._quiet_until_s)
        try:
            async with asyncio.timeout_at(min((time for time in times if time is not None), default=None)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def guarded(self, handling: Coroutine[Any, Any, None], message: Message[T]) -> None:
        """Run the coroutine that handles a message; cancel it once other members may take this one for dead."""
        task = asyncio.get_running_loop().create_task(handling, name="bokiqueue handling")
        self._handling[task] = message
        try:
            await asyncio.wait([task])
        finally:
            self._handling.pop(task, None)
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()

    def leave_handlers_behind(self) -> None:
        """Let the program end without the handlers that run now: they do not end although they were cancelled."""
        for task in self._handling:
            leave_behind(task)

    # -- for owners of shards

    def wake(self) -> None:
        """Wake the tasks that wait for a change."""
        self._wake.set()

    @property
    def dead_letters(self) -> Producer | None:
        """The producer of dead letters, or None if the queue has no dead letters."""
        name = self.found.config.dead_letter
        if name is None:
            return None
        if self._letters is None or self._letters[0] != name:
            self._letters = name, self._producers(name)
        return self._letters[1]

    def deliver(self, owner: ShardOwner, deliveries: list[Delivery]) -> None:
        """Deliver messages whose DELIVER is in the log by now."""
        self._ready.extend((owner, delivery) for delivery in deliveries)
        self.wake()

    def failed(self, error: Exception) -> None:
        """End this member after a defect: it sends no heartbeat any more, and iteration raises the error."""
        self._members.fail(error)

    def lost(self, owner: ShardOwner) -> None:
        """Forget an owner that lost or released its shard."""
        if not owner.released:
            self._not_released[owner.shard] = None
        if self._owners.get(owner.shard) is owner:
            del self._owners[owner.shard]
        if self._alone is owner:
            self._alone, self._quiet_until_s = None, 0.0
        self._members_changed()

    # -- records received

    def _saw_claim(self, item: Read | boki.Gap | BokiError) -> None:
        moves = self._claims.saw(item)
        for move in moves:
            owner = self._owners.get(move.partition)
            if owner is not None and owner.is_replaced_by(move.now):
                owner.over()
        if moves:
            self._rounds.wake()

    def _configured(self, item: Read | boki.Gap | BokiError) -> None:
        if not isinstance(item, Read):
            return
        for event in PICKER.of(item.record.seqnum, item.envelope, about=self.found.config.queue):
            if isinstance(event, Config) and item.record.seqnum > self.found.seqnum:
                self.found = VersionedConfig(event, item.record.seqnum)
                for owner in list(self._owners.values()):
                    owner.configured(event.groups.get(self._group, 0))
                self.wake()

    # -- moving shards

    async def _balance(self) -> None:
        """Run the rounds until an error ends this member."""
        try:
            await self._rounds.run(self._look, self._look_failed)
        except Exception as error:  # noqa: BLE001 - iteration raises it
            await self._fails(error)

    async def _guard(self, is_due: bool) -> None:
        """Cancel handlers once other members may take this one for dead, whatever its other tasks wait for."""
        if not self._members.may_act():
            for task in list(self._handling):
                task.cancel()

    def _guard_ended(self, task: asyncio.Task[None]) -> None:
        """End this member if its guard failed: its handlers would run on when others take it for dead."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.failed(error)

    async def _look(self, is_due: bool) -> None:
        """Do what is due for the shards of this member, and take and give shards."""
        config = self.found.config
        if self._group not in config.groups:
            for owner in list(self._owners.values()):
                owner.over()
            raise no_such_group(config, self._group)
        if self._members.failed is not None:
            raise self._members.failed
        try:
            self._check_made()
        except NoSuchQueue:
            for owner in list(self._owners.values()):
                owner.over()
            raise
        for owner in list(self._owners.values()):
            owner.tend()
        await self._move()
        await self._move_strays(config)

    async def _move_strays(self, config: Config) -> None:
        """Move messages out of streams of shards that the queue does not have, from time to time."""
        now_s = asyncio.get_running_loop().time()
        if config.streams > config.shards and 0 in self._owners and now_s >= self._strays_s:
            self._strays_s = now_s + STRAYS_S
            await strays.move(self._log, config.queue)

    def _look_failed(self, error: BokiError) -> None:
        """Log an error after which the next look tries again; raise one that ends this member."""
        if self._group not in self.found.config.groups or isinstance(error, NoSuchQueue):
            raise error
        log.warning("shards not dealt: the next look tries again", queue=self.found.config.queue, error=str(error))
        if not error.retryable and not isinstance(error, Fenced):
            raise error

    def _warn_of_late_loop(self, seen_s: float, still_s: float) -> None:
        """Log a warning that the event loop stood still, with the messages whose handlers may have blocked it."""
        log.warning(
            lease_rules.LOOP_LATE,
            seconds=round(still_s, 1),
            queue=self.found.config.queue,
            who=self.who,
            messages=[
                f"{one.receipt.id} shard {one.receipt.shard}" + (f" key {one.key}" if one.key is not None else "")
                for one in list(self._handling.values())[:NAMED]
            ],
            count=len(self._handling),
            advice="await asyncio.to_thread(...) for what blocks in a handler",
        )

    async def _fails(self, error: Exception) -> None:
        """End this member: iteration raises the error, and heartbeats stop so that others take over."""
        self._failed = error
        self._log.incarnations.stop(self._member.token)
        try:
            await self._members.__aexit__(None, None, None)
        finally:
            self.wake()

    def _standing(self, shard: int) -> Standing:
        claim = self._claims.newest[shard]
        holder, mine = holder_of(claim).who, shard in self._owners
        if claim is not None and self._is_rivals(claim):
            self._warn_of_rival(claim)
            if not self._rival_is_gone(claim):
                return Standing(f"{holder} (another of this name)", mine, free=False)
        free = holder == NOBODY or (holder != self.who and self._members.dead(holder))
        return Standing(holder, mine, free)

    def _is_rivals(self, claim: Claim) -> bool:
        """Return whether another member with this name made a claim after this one began: before, it was a predecessor."""
        other = (claim.by, scope_of(claim.token)) != (self._log.by, self._member.token)
        return claim.who == self.who and other and claim.seqnum > self._claims.read_at

    def _rival_is_gone(self, claim: Claim) -> bool:
        """Return whether a member with this name ended. To other members the two are one that lives, so they take no shard of it."""
        if claim.by == self._log.by:
            return self._log.incarnations.stopped(scope_of(claim.token))
        return self._members.namesake_dead(claim.by)

    def _warn_of_rival(self, claim: Claim) -> None:
        """Log once that another process took shards under the name of this member."""
        if claim.by == self._rival:
            return
        self._rival = claim.by
        log.warning(
            "another member has this name: it took the shards, and this one waits until it ends; give each process a who= of its own",
            queue=self.found.config.queue,
            group=self._group,
            who=self.who,
            incarnation=self._log.by,
            other=claim.by,
        )

    async def _move(self) -> None:
        """Take the shards that the plan gives to this member, and begin to release those that it gives to others."""
        config = self.found.config
        alive = self._members.alive()
        if self._members.may_act() and self.who not in alive:
            alive = sorted([*alive, self.who])
        planned = in_turn(alive, config.shards, f"{config.queue}/{self._group}")
        todo = moves(self.who, planned, [self._standing(shard) for shard in range(config.shards)])
        for shard in todo.give:
            if shard not in self._giving:
                task = asyncio.get_running_loop().create_task(
                    self._owners[shard].give_back(), name="bokiqueue give back"
                )
                self._giving[shard] = task
                task.add_done_callback(partial(self._given, shard))
        taken = await asyncio.gather(*map(self._take, todo.take), return_exceptions=True)
        for failed in taken:
            if failed is not None:
                raise failed

    def _given(self, shard: int, task: asyncio.Task[None]) -> None:
        self._giving.pop(shard, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("shard not given back", queue=self.found.config.queue, shard=shard, error=described(error))
        self._rounds.wake()

    def _owner_of(self, shard: int) -> ShardOwner:
        return ShardOwner(self._log, shard, self._group, member=self._member, host=self, follower=self._follower)

    async def _take(self, shard: int) -> None:
        owner, newest = self._taking.get(shard), self._claims.newest[shard]
        if owner is None or (newest is not None and owner.is_replaced_by(newest)):
            owner = self._taking[shard] = self._owner_of(shard)
        try:
            await owner.take(newest)
        except Fenced:  # another claim was met, which the follower may not have delivered yet
            del self._taking[shard]
            if owner.fence.other is not None:
                self._claims.learn(shard, owner.fence.other)
            self._rounds.wake()
            return
        del self._taking[shard]
        self._not_released.pop(shard, None)
        self._owners[shard] = owner
        newest = self._claims.newest[shard]
        if newest is not None and owner.is_replaced_by(newest):
            owner.over()  # the claim arrived while the state before it was read
        self.wake()

    def _members_changed(self) -> None:
        self._rounds.wake()
        self.wake()


def _raise(error: BokiError) -> None:
    raise error


async def _within(works: Iterable[Coroutine[Any, Any, None]], most_s: float) -> list[BaseException]:
    """Run coroutines concurrently and cancel those that have not ended in time. Return the errors of the others."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work, name="bokiqueue leaves") for work in works]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=most_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
