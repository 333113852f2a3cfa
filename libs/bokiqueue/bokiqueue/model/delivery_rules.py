"""Rules of delivery: which messages the owner of a shard delivers next, and which are in flight. Pure.

- Messages are delivered by priority, then oldest first (`priority_rules`), among those in memory (`READ_AHEAD`); a
  redelivered message is older than a fresh one. Of a key one message is in flight at a time. While it waits for its
  redelivery its key waits, and messages of other keys pass.
- The oldest message of a key comes next, whatever its priority, with the highest priority of the messages that wait
  behind it.
- Messages that the owner before had delivered when it died may have killed it: they are suspects. They are delivered singly:
  no other message of the shard is in flight. If the process dies again, the message that was delivered singly is a
  culprit and is delivered alone: its member has no other message (`take_alone`, called by the member). A process that
  dies while a message is alone with it failed an attempt of that message. So a message that kills its handlers becomes
  a dead letter alone, and never a message that was only beside it.
- A message that is delivered while the member has no other is *by itself* until a second one is delivered
  (`accompanied`). A process that dies with it failed an attempt too, from the first death on, and the message is a
  culprit. Delivery of others does not wait until `accompanied` is in the log, so such a death may be counted wrongly;
  therefore it is never the last attempt, which is always delivered alone.
- A culprit with a failed attempt waits before its redelivery, as after any failed attempt, and other messages are
  delivered meanwhile.
- The first `CAREFUL` fresh messages of a new owner are delivered after their DELIVER is in the log, because the owner
  before may have delivered them before its own DELIVER was. Later ones are delivered while DELIVER is in flight.
- Purged messages are compared with the deduplication window like all others, and then finished.
- A message for another group alone is passed: it is never in memory, and its `dedup_id` is not compared.
- A record that cannot be opened is passed and kept: the floor stays below it (`shard_state`). Neither the keys of its
  messages nor their deduplication ids are known. So a message behind it that has a deduplication id waits, since it may
  be a duplicate, and so does an undelivered one with a key. Others pass. They wait until an owner can open the record,
  or the queue's settings drop it.
- A key whose rate does not allow another message yet waits; messages of other keys pass.
- A message with `attempts_most` failed attempts is given up instead of redelivered. An attempt that ends without a
  failure (its lease ran out, its process was stopped or died with others in flight) does not count. So the log has the
  end of each guard: a message that waits while the log has its guard counts as one whose process died with it.
- In memory are up to `READ_AHEAD` deliverable messages, and up to `WAITING` in all with those that wait for their key,
  its rate or their time. Waiting messages do not keep others out.
- A lease runs from the time at which a handler has the message. A message whose decision is being appended (`pinned`)
  has no lease: otherwise it could be redelivered, and both decisions would count.

Times `now_s` are of the owner's monotonic clock, `now_ms` of its estimate of the log's clock, which runs on while the
log's time stands still. Due times in the log are the log's. In memory they are later by as much as the estimate is
ahead (`ahead_ms`), so that a delay is as long as it was set for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec

from boki_common.limits import MIB
from bokiqueue.model.events import Delivered, Id, Item, is_for
from bokiqueue.model.limit_rules import KeyRateLimits
from bokiqueue.model.priority_rules import ReadyMessages
from bokiqueue.model.shard_state import ALONE, BY_ITSELF, SINGLY, Progress

BACKOFF_S: Final = 1.0
BACKOFF_MOST_S: Final = 60.0
CAREFUL: Final = 1_024
"""The most messages that one owner may have delivered before its DELIVER was in the log: the upper bound of a prefetch."""
READ_AHEAD: Final = 4_096
"""Messages that an owner keeps in memory to deliver; it reads more when half of them are finished."""
WAITING: Final = 32_768
"""Messages that an owner keeps in memory at all: the ids of as many fit one record."""
WAITING_BYTES: Final = 64 * MIB
"""The most bytes of bodies in memory beyond `READ_AHEAD` messages."""


def backoff_s(attempt: int, first_s: float = BACKOFF_S) -> float:
    """Return the seconds to wait after the given number of failed attempts."""
    return min(BACKOFF_MOST_S, first_s * 2.0 ** min(max(attempt, 1) - 1, 30))


class BufferedMessage:
    """A message in memory.

    Attributes:
        pushed_ms: the time of its record.
        due_ms: the time before which it is not delivered, by the owner's clock once it is in a schedule; 0 for none.
    """

    __slots__ = ("due_ms", "id", "item", "pushed_ms")

    def __init__(self, id: Id, item: Item, pushed_ms: int) -> None:
        self.id = id
        self.item = item
        self.pushed_ms = pushed_ms
        self.due_ms = pushed_ms + item.delay_ms if item.delay_ms else 0


class Flight:
    """The delivery of a message that is undecided.

    Attributes:
        attempt: the number of the attempt.
        number: the number of this delivery among all deliveries of the owner.
        deadline_s: the end of the handler's lease; None while no lease runs.
        pinned: True while a decision about the message is being appended.
    """

    __slots__ = ("attempt", "deadline_s", "number", "pinned")

    def __init__(self, attempt: int, number: int) -> None:
        self.attempt = attempt
        self.number = number
        self.deadline_s: float | None = None
        self.pinned = False


class Delivery(NamedTuple):
    """A message to deliver. `attempt` and `number` are those of its `Flight`."""

    entry: BufferedMessage
    attempt: int
    number: int


class DeliveryBatch(NamedTuple):
    """Messages that are delivered together.

    Attributes:
        delivered: the event to append.
        logged_first: True if they may be delivered only once the event is in the log.
        dead: messages to give up instead, each with the number of failed attempts.
    """

    deliveries: list[Delivery]
    delivered: Delivered | None
    logged_first: bool
    dead: list[Delivery]


NO_BATCH: Final = DeliveryBatch([], None, False, [])


class DeliverySchedule:
    """The messages of a shard that are in memory, and the order in which they are delivered. See the module.

    Invariants: at most one message of a key is in flight; no finished message is in memory.

    Attributes:
        reached: this owner read all records up to here; `progress.read` may be higher, from an earlier owner.
        attempts_most: failed attempts before a message is given up, 0 for any number.
    """

    def __init__(
        self,
        id: str,
        progress: Progress,
        *,
        attempts_most: int,
        careful: bool,
        group: str = "",
        since_ms: int = 0,
        only: Callable[[Item], bool] | None = None,
        keys: KeyRateLimits | None = None,
        ready: ReadyMessages | None = None,
        dropped: Collection[int] = (),
        backoff_s: float = BACKOFF_S,
        ahead_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """Begin with the progress of the group and no messages in memory.

        Args:
            id: the id of the consumer stream.
            attempts_most: 0 for any number.
            careful: True if there was an owner before that did not release the shard.
            group: the group of this owner.
            since_ms: when this owner took the shard, by the log's clock.
            only: selects the messages that this owner delivers; it keeps the rest for others.
            keys: rates of the keys.
            ready: the order of the ready messages.
            dropped: records whose messages no group gets.
            backoff_s: the wait after the first death of a process that counts as a failed attempt.
            ahead_ms: returns by how much the owner's clock is ahead of the log's.
        """
        self.progress: Final = progress
        self.reached = max(progress.needs.seqnum - 1, 0)
        self._start = progress.floor.seqnum
        """Messages below are finished, except those in flight."""
        self.flights: Final[dict[Id, Flight]] = {}
        self.entries: Final[dict[Id, BufferedMessage]] = {}
        self._id = id
        self._group = group
        self._rates = keys if keys is not None else KeyRateLimits(0.0, 0)
        self.attempts_most = attempts_most
        self._since_ms = since_ms
        self._backoff_s = backoff_s
        self._ahead_ms = ahead_ms
        self._by_itself: Id | None = None
        self._only = only
        self._others = 0
        """The number of messages in memory that are for other owners."""
        self._numbers = 0
        self._bytes = 0
        self._suspects: set[Id] = set()
        self._culprits: set[Id] = set()
        self._alone: dict[Id, None] = {}
        """Culprits that may be delivered now."""
        self._suspecting = careful
        self._careful = CAREFUL if careful else 0
        self._fresh: deque[Id] = deque()
        self._ready = ready if ready is not None else ReadyMessages()
        self._later: list[tuple[int, Id]] = []
        self._keys: dict[str, deque[Id]] = {}
        self._urgent: dict[str, list[int]] = {}
        self._deadlines: list[tuple[float, Id]] = []
        self._unopened: dict[int, None] = {}
        self._dropped = frozenset(dropped)
        self._behind: dict[Id, None] = {}
        self._following = 0
        """The number of messages that wait for an earlier message of their key."""

    def __len__(self) -> int:
        """Return the number of messages and unopened records in memory."""
        return len(self.entries) + len(self._unopened)

    def full(self, ahead: int) -> bool:
        """Return True if no more may be read until a message is finished. `ahead` is `READ_AHEAD`, but in tests."""
        if self._able() >= ahead:
            return True
        return len(self) >= ahead and (len(self) >= WAITING or self._bytes >= WAITING_BYTES)

    def wants_more(self, ahead: int) -> bool:
        """Return True if reading pays again after `full` was True."""
        few = len(self) <= WAITING * 3 // 4 and self._bytes <= WAITING_BYTES * 3 // 4
        return self._able() <= ahead // 2 and (len(self) <= ahead // 2 or few)

    def _able(self) -> int:
        """Return the number of messages in memory that do not wait for their key or their time; unopened records count."""
        return len(self) - min(len(self.entries), self._following + len(self._later) + self._others)

    @property
    def unopened(self) -> list[int]:
        """Records that could not be opened and are kept."""
        return list(self._unopened)

    # -- adding messages

    def offer(self, seqnum: int, time_ms: int, items: tuple[Item, ...]) -> None:
        """Add the messages of one record, read by this owner for the first time, in the order of the stream."""
        self.offer_some(seqnum, time_ms, enumerate(items))

    def offer_some(self, seqnum: int, time_ms: int, items: Iterable[tuple[int, Item]]) -> None:
        """Add the remaining messages of one record, with their numbers."""
        compares = seqnum > self.progress.read and self._undivided_from() is None
        for index, item in () if seqnum in self._dropped else items:
            if not is_for(item, self._group):
                continue
            id = Id(seqnum, index)
            if compares and item.dedup is not None and self.progress.window.twice(item.dedup, time_ms):
                self.progress.ends(id)
            if seqnum >= self._start and not self.progress.is_finished(id):
                self._keep(BufferedMessage(id, item, time_ms))
        self.reaches(seqnum)

    def reaches(self, seqnum: int) -> None:
        """Note that this owner read all records up to here, and distinguished duplicates up to the first unopened one."""
        self.reached = max(self.reached, seqnum)
        undivided = self._undivided_from()
        self.progress.read = max(self.progress.read, self.reached if undivided is None else undivided - 1)

    def passes(self, seqnum: int) -> bool:
        """Keep a record of messages that cannot be opened; return False if its messages were purged or dropped."""
        kept = seqnum >= self._start and seqnum not in self._dropped
        if kept:
            self._unopened[seqnum] = None
        self.reaches(seqnum)
        return kept

    # -- waiting behind unopened records

    def _undivided_from(self) -> int | None:
        """Return the first unopened record from which on duplicates were not distinguished, or None."""
        if not self._unopened:
            return None
        return next((seqnum for seqnum in self._unopened if seqnum > self.progress.read), None)

    def _waits(self, entry: BufferedMessage) -> bool:
        """Return True if an unopened record keeps a message back."""
        if not self._unopened:
            return False
        id, item = entry.id, entry.item
        undivided = self._undivided_from() if item.dedup is not None else None
        if undivided is not None and id.seqnum > undivided:
            return True
        return item.key is not None and id.seqnum > next(iter(self._unopened)) and not self.progress.attempt(id)

    def drop(self, dropped: Collection[int]) -> None:
        """Drop the messages of these records, except those that are in flight."""
        if self._dropped == frozenset(dropped):
            return
        self._dropped = frozenset(dropped)
        for id in [id for id in self.entries if id.seqnum in self._dropped and id not in self.flights]:
            self._remove(id)
        self._unopened = {one: None for one in self._unopened if one not in self._dropped}
        self._compare_waiting()
        self._release_waiting()

    def _compare_waiting(self) -> None:
        """Tell duplicates among messages that waited behind unopened records which are gone now."""
        undivided = self._undivided_from()
        for id, entry in list(self.entries.items()):
            dedup = entry.item.dedup
            if dedup is None or id.seqnum <= self.progress.read or (undivided is not None and id.seqnum > undivided):
                continue
            if self.progress.window.twice(dedup, entry.pushed_ms):
                self._remove(id)
        self.reaches(self.reached)

    def _release_waiting(self) -> None:
        """Release messages that waited behind unopened records which are gone now."""
        behind, self._behind = self._behind, {}
        for id in behind:
            if id in self.entries and self.entries[id].item.key is None:
                self._line_up(self.entries[id])
        self._line_up_keys()

    def _line_up_keys(self) -> None:
        for waiting in self._keys.values():
            if waiting[0] not in self.flights:
                self._line_up(self.entries[waiting[0]])

    def _remove(self, id: Id) -> None:
        """Finish a message that is not in flight."""
        item = self.entries.pop(id).item
        key = item.key
        self._forget_message(id, item)
        if self._only is not None and not self._only(item):
            self._others -= 1
        elif key is not None:
            self._keys[key].remove(id)
            self._forget_priority(key, item.priority)
            if not self._keys[key]:
                del self._keys[key]
            else:
                self._following -= 1

    def _forget_message(self, id: Id, item: Item) -> None:
        """Forget a message that was in memory."""
        self._bytes -= memoryview(item.body).nbytes
        self._suspects.discard(id)
        self._culprits.discard(id)
        self._alone.pop(id, None)
        self.progress.ends(id)

    # -- lines

    def _keep(self, entry: BufferedMessage) -> None:
        id, key = entry.id, entry.item.key
        entry.due_ms = self._due_here_ms(self.progress.due.get(id, entry.due_ms))
        self.entries[id] = entry
        self._bytes += memoryview(entry.item.body).nbytes
        if self._only is not None and not self._only(entry.item):
            self._others += 1
            if id > self.progress.upto:
                self._fresh.append(id)
            return
        head = self.entries[self._keys[key][0]] if key is not None and key in self._keys else entry
        if id > self.progress.upto:
            self._fresh.append(id)
        elif self._suspecting and self.progress.is_delivered(id) and not self._waits(head):
            self._restrict(entry)
        if key is None or self._is_first(entry, key):
            self._line_up(entry)

    def _is_first(self, entry: BufferedMessage, key: str) -> bool:
        """Add a message to those of its key. Return True if it is the first of them; otherwise it waits behind the first."""
        waiting = self._keys.setdefault(key, deque())
        waiting.append(entry.id)
        if entry.item.priority:
            self._urgent.setdefault(key, []).append(entry.item.priority)
        if len(waiting) == 1:
            return True
        self._following += 1
        self._raise_head(self.entries[waiting[0]], entry.item.priority)
        return False

    def _due_here_ms(self, due_ms: int) -> int:
        """Return a time of the log by the owner's clock, 0 for none."""
        return due_ms + self._ahead_ms() if due_ms else 0

    def _restrict(self, entry: BufferedMessage) -> None:
        """Restrict a message that the owner before had delivered when it died."""
        guard = self.progress.guarded.get(entry.id, 0)
        if not guard:
            self._suspects.add(entry.id)
            return
        self._culprits.add(entry.id)
        if self._failed_alone(entry.id):
            failed = self.progress.attempt(entry.id)
            entry.due_ms = self._since_ms + round(1_000 * backoff_s(failed, self._backoff_s))

    def _failed_alone(self, id: Id) -> bool:
        """Return True if the death of the process that had this culprit was a failed attempt of it."""
        guard = self.progress.guarded.get(id)
        last = bool(self.attempts_most) and self.progress.attempt(id) >= self.attempts_most
        return guard == ALONE or (guard == BY_ITSELF and not last)

    def _raise_head(self, head: BufferedMessage, priority: int) -> None:
        """Line up the first message of a key again after a message of higher priority came behind it."""
        if priority > head.item.priority and not head.due_ms and head.id not in self.flights:
            self._line_up(head)

    def _priority(self, item: Item) -> int:
        """Return the priority of a message: for the first of a key, the highest of those that wait behind it."""
        return max(self._urgent.get(item.key, ()), default=0) if item.key is not None else item.priority

    def _line_up(self, entry: BufferedMessage) -> None:
        if self._waits(entry):
            self._behind[entry.id] = None
        elif entry.due_ms:
            heappush(self._later, (entry.due_ms, entry.id))
        elif entry.id in self._culprits:
            self._alone[entry.id] = None
        else:
            self._ready.add(entry.id, self._priority(entry.item))

    # -- delivering

    def next_due_ms(self) -> int | None:
        """Return the time, by the log's clock, at which another message becomes due; None if none waits for its time."""
        return self._later[0][0] if self._later else None

    @property
    def has_waiting(self) -> bool:
        """True if a message is ready, waits for its time, or is delivered alone: most looks of a member find nothing in most shards."""
        return bool(self._ready or self._later or self._suspects or self._alone)

    def take(self, most: int, now_ms: int) -> DeliveryBatch:
        """Take up to `most` messages that may be delivered now."""
        self._become_due(now_ms)
        if self._suspects:
            batch = self._take_suspect(most, now_ms)
            if batch is not None:
                return batch
        deliveries: list[Delivery] = []
        dead: list[Delivery] = []
        while len(deliveries) < most:
            next_id = self._ready.next()
            if next_id is None:
                break
            if next_id not in self.entries or next_id in self.flights or self.entries[next_id].due_ms:
                continue
            if self._waits_for_its_key(next_id, now_ms):
                continue
            self._ready.taken()
            delivery = self._delivery(next_id)
            self._flies(delivery)  # it may be lined up twice
            (dead if self._too_often(delivery) else deliveries).append(delivery)
        return self._batch(deliveries, dead)

    def _become_due(self, now_ms: int) -> None:
        """Line up messages whose time has come."""
        while self._later and self._later[0][0] <= now_ms:
            due_ms, id = heappop(self._later)
            entry = self.entries.get(id)
            if entry is not None and id not in self.flights and entry.due_ms == due_ms:
                entry.due_ms = 0
                self._line_up(entry)

    # -- culprits

    @property
    def has_lone(self) -> bool:
        """True if a message is delivered alone now, or may be once its time has come."""
        return bool(self._alone or self._later)

    def wants_alone(self, now_ms: int) -> bool:
        """Return True if a message may be delivered only by `take_alone`."""
        self._become_due(now_ms)
        return bool(self._alone)

    def take_alone(self, now_ms: int) -> DeliveryBatch:
        """Take the oldest culprit. Its member may deliver no other message until this one is decided or its lease ends."""
        assert not self.flights, "it is handed out alone"
        return self._take_only(min(self._alone), now_ms, ALONE) if self.wants_alone(now_ms) else NO_BATCH

    def postpone_alone(self, now_ms: int) -> None:
        """Let culprits wait: the member is not without other messages."""
        for id in list(self._alone):
            del self._alone[id]
            self.entries[id].due_ms = now_ms + round(1_000 * BACKOFF_MOST_S)
            self._line_up(self.entries[id])

    # -- messages by themselves

    def by_itself(self, delivered: Delivered) -> Delivered:
        """Return the event to append for the message just delivered, which is the only one of the whole member."""
        (id,) = self.flights
        if self.progress.guarded.get(id) == ALONE or self.flights[id].pinned:
            return delivered
        self._by_itself = id
        changed = msgspec.structs.replace(delivered, guarded=((id.seqnum, id.number, BY_ITSELF),))
        self.progress.apply(changed)
        return changed

    def accompanied(self) -> Delivered | None:
        """Return the event saying that a message is no longer by itself, or None. Called when the member has other messages in flight."""
        id = self._by_itself
        if id is None or (flight := self.flights.get(id)) is None:
            self._by_itself = None
            return None
        if flight.pinned:
            return None  # its decision is in flight, and would be undone
        self._by_itself = None
        if self.progress.guarded.get(id) != BY_ITSELF:
            return None
        guarded = ((id.seqnum, id.number, SINGLY),) if id in self._suspects else ()
        delivered = Delivered(self._id, self.progress.upto, (), ((id.seqnum, id.number, flight.attempt),), (), guarded)
        self.progress.apply(delivered)
        return delivered

    # -- rates

    def rates(self, own: Mapping[str, float], per_second: float) -> None:
        """Change the rates of keys, and line up keys that waited for theirs.

        Args:
            own: rates of single keys.
            per_second: the rate of all other keys.
        """
        before, self._rates.own = self._rates.own, own
        usual, self._rates.per_second = self._rates.per_second, per_second
        for key in list(self._keys) if usual != per_second else dict.fromkeys((*before, *own)):
            if (before.get(key, usual) == own.get(key, per_second)) or key not in self._keys:
                continue
            head = self.entries[self._keys[key][0]]
            if head.due_ms and head.id not in self.progress.due and head.id not in self.flights:
                head.due_ms = 0
                self._line_up(head)

    def _waits_for_its_key(self, id: Id, now_ms: int) -> bool:
        """Return True if its key's rate does not allow a message yet; else count this one."""
        entry = self.entries[id]
        entry.due_ms = self._rates.due_ms(entry.item.key, now_ms)
        if entry.due_ms:
            self._line_up(entry)
            return True
        self._rates.take(entry.item.key, now_ms)
        return False

    def _take_suspect(self, most: int, now_ms: int) -> DeliveryBatch | None:
        """Take the oldest suspect, or the first message of its key, and nothing beside it; None if all suspects wait for their time."""
        heads = {self._keys[key][0] for id in self._suspects if (key := self.entries[id].item.key) is not None}
        able = [id for id in self._ready if id in self._suspects] or [id for id in self._ready if id in heads]
        if not able and not (self.flights.keys() & (self._suspects | heads)):
            return None
        if not able or self.flights or most < 1:
            return NO_BATCH
        return self._take_only(min(able), now_ms, SINGLY if min(able) in self._suspects else 0)

    def _take_only(self, id: Id, now_ms: int, guard: int) -> DeliveryBatch:
        self._ready.discard(id)
        self._alone.pop(id, None)
        if self._waits_for_its_key(id, now_ms):
            return NO_BATCH
        delivery = self._delivery(id)
        self._culprits.discard(id)
        self._flies(delivery)
        return self._batch([], [delivery]) if self._too_often(delivery) else self._batch([delivery], [], guard)

    def _flies(self, delivery: Delivery) -> None:
        self.flights[delivery.entry.id] = Flight(delivery.attempt, delivery.number)

    def _delivery(self, id: Id) -> Delivery:
        failed_alone = id in self._culprits and self._failed_alone(id)
        self._numbers += 1
        return Delivery(self.entries[id], self.progress.next_attempt(id) + failed_alone, self._numbers)

    def _too_often(self, delivery: Delivery) -> bool:
        return bool(self.attempts_most) and delivery.attempt > self.attempts_most

    def _batch(self, deliveries: list[Delivery], dead: list[Delivery], guard: int = 0) -> DeliveryBatch:
        """Return the event to append for these messages, which are in flight."""
        gone = [delivery._replace(attempt=delivery.attempt - 1) for delivery in dead]
        for delivery in dead:
            self.flights[delivery.entry.id].pinned = True
        if not deliveries:
            return DeliveryBatch([], None, False, gone)
        before = self.progress.upto
        upto = max(before, *(delivery.entry.id for delivery in deliveries))
        held = self._held(upto)
        again = tuple(
            (delivery.entry.id.seqnum, delivery.entry.id.number, delivery.attempt)
            for delivery in deliveries
            if delivery.entry.id <= before
        )
        unopened = [one for one in self._unopened if one <= upto.seqnum and one not in self.progress.unopened]
        guarded = tuple((delivery.entry.id.seqnum, delivery.entry.id.number, guard) for delivery in deliveries if guard)
        delivered = Delivered(self._id, upto, tuple(held), again, tuple(unopened), guarded)
        logged_first = bool(self._suspects) or guard > 0 or self._careful > 0
        self._careful = max(0, self._careful - (len(deliveries) - len(again)))
        self.progress.apply(delivered)
        return DeliveryBatch(deliveries, delivered, logged_first, gone)

    def _held(self, upto: Id) -> list[Id]:
        """Remove fresh messages up to an id, and return those that are not in flight."""
        held = []
        while self._fresh and self._fresh[0] <= upto:
            id = self._fresh.popleft()
            if id not in self.flights:
                held.append(id)
        return held

    # -- handlers

    def begin(self, id: Id, deadline_s: float) -> None:
        """Start the lease of a message that a handler has now."""
        self.flights[id].deadline_s = deadline_s
        heappush(self._deadlines, (deadline_s, id))

    def number(self, id: Id) -> int | None:
        """Return the number of the delivery of a message that is in flight and undecided, or None."""
        flight = self.flights.get(id)
        return None if flight is None or flight.pinned else flight.number

    def pin(self, id: Id) -> None:
        """Note that a decision about the message is being appended."""
        self.flights[id].pinned = True

    def unpin(self, id: Id) -> None:
        """Note that the decision certainly did not happen: the handler still has the message."""
        flight = self.flights[id]
        flight.pinned = False
        if flight.deadline_s is not None:
            heappush(self._deadlines, (flight.deadline_s, id))

    def over(self, id: Id) -> None:
        """Finish a message that was acked or given up."""
        entry = self.entries.pop(id)
        del self.flights[id]
        self._forget_message(id, entry.item)
        key = entry.item.key
        if key is not None:
            waiting = self._keys[key]
            assert waiting[0] == id, "the messages of a key are decided in order"
            waiting.popleft()
            self._forget_priority(key, entry.item.priority)
            if waiting:
                self._following -= 1
                self._line_up(self.entries[waiting[0]])
            else:
                del self._keys[key]

    def _forget_priority(self, key: str, priority: int) -> None:
        """Forget the priority of a finished message of a key."""
        if priority:
            self._urgent[key].remove(priority)
            if not self._urgent[key]:
                del self._urgent[key]

    def again(self, id: Id, failed: int, due_ms: int) -> None:
        """Redeliver a message when the log's clock reaches `due_ms`, 0 for at once, after `failed` failed attempts."""
        self.progress.due[id] = due_ms
        self.flights[id].attempt = failed
        self._returns(id, self._due_here_ms(due_ms))

    def expires(self, id: Id) -> None:
        """Redeliver a message that is not guarded and whose lease ran out at once, without a failed attempt."""
        assert id not in self.progress.guarded, "the log has its guard, and has to have its end too"
        self._returns(id, 0)

    def _returns(self, id: Id, due_ms: int) -> None:
        """Line up a message that its handler did not finish, or drop it if it was purged while the handler had it."""
        if id.seqnum < self._start:
            self.over(id)
            return
        flight = self.flights.pop(id)
        entry = self.entries[id]
        entry.due_ms = due_ms
        self.progress.attempts[id] = flight.attempt
        self.progress.guarded.pop(id, None)
        self._suspects.discard(id)
        self._line_up(entry)

    @property
    def suspecting(self) -> bool:
        """True if messages are left that may have killed the owner before, or if not all that it delivered was read."""
        unread = self._suspecting and self.reached < self.progress.upto.seqnum
        return bool(self._suspects or self._culprits or unread)

    def undecided(self) -> list[tuple[Id, int]]:
        """Return the messages in flight, each with the number of attempts that failed before."""
        return sorted((id, flight.attempt - 1) for id, flight in self.flights.items())

    def not_begun(self) -> list[Id]:
        """Return the messages in flight that no handler has yet."""
        return sorted(id for id, flight in self.flights.items() if flight.deadline_s is None and not flight.pinned)

    def expired(self, now_s: float) -> list[Id]:
        """Return messages whose lease ran out. It is cheap while no lease is due, since it is called for each message."""
        first_s = self.next_deadline_s()
        if first_s is None or first_s > now_s:
            return []
        return sorted(
            id
            for id, flight in self.flights.items()
            if not flight.pinned and flight.deadline_s is not None and flight.deadline_s <= now_s
        )

    def next_deadline_s(self) -> float | None:
        """Return when the first lease runs out. Outdated deadlines are removed when they come to the front."""
        while self._deadlines:
            deadline_s, id = self._deadlines[0]
            flight = self.flights.get(id)
            if flight is not None and flight.deadline_s == deadline_s and not flight.pinned:
                return deadline_s
            heappop(self._deadlines)
        return None

    def purge(self, seqnum: int) -> None:
        """Finish all messages below a seqnum, except those in flight. Those that were not read yet are finished when they are."""
        self._start = max(self._start, seqnum)
        self._unopened = {one: None for one in self._unopened if one >= seqnum}
        self._compare_waiting()
        for id in [id for id in self.entries if id.seqnum < seqnum and id not in self.flights]:
            self._remove(id)
        while self._fresh and self._fresh[0].seqnum < seqnum:
            self._fresh.popleft()
        self._release_waiting()

    def raise_floor(self) -> None:
        """Raise the floor of the progress to the first unfinished message."""
        first = [next(iter(self.entries), None), next((Id(one, 0) for one in self._unopened), None)]
        lowest = min((id for id in first if id is not None), default=Id(self.reached + 1, 0))
        self.progress.raise_floor(min(lowest, Id(self.reached + 1, 0)))
