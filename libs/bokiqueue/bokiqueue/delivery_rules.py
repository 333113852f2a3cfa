"""What the owner of a shard hands out next, and what it knows of what it handed out. Pure.

- By priority, then oldest first (`priority_rules`): what comes again is older than what is fresh. It is among what is in memory
  (`READ_AHEAD`). Of a key one message is in flight at a time; while it comes again later, its key waits. Messages of other keys pass.
- Of a key the oldest comes next, whatever its priority, with the highest priority of those that wait for it: it stands in their way.
- What the owner before had handed out when it died may be what it died of (`suspects`): it is handed out one at a time, with nothing of
  its shard beside it. If the process dies again, the one that was handed out so is a culprit: it is handed out alone, with nothing of its
  whole member beside it (`take_alone`, which the member calls). A process that dies with a message which was alone failed an attempt of
  that message. So one that kills its handlers becomes a dead letter by itself, and none that was only beside it does.
- A message that is handed out while the member has no other is alone too, *by itself*, until another one is handed out (`accompanied`). A
  process that dies with it failed an attempt as well, from the first death on, and the message is a culprit. Others do not wait until the
  log has `accompanied`, so such a death may be wrongly counted; therefore it is never the last attempt: that one is handed out alone.
- A culprit of which an attempt failed so waits before it comes again, as after any failed attempt, and others go on meanwhile.
- The first `CAREFUL` fresh messages of a new owner are handed out after their DELIVER is in the log, for the owner before may have
  handed them out before his was. Else DELIVER travels while handlers work.
- What cannot be opened is passed, and kept: the floor stays below it (`shard_state`). The keys of its messages are unknown, and so is
  whose copies they are. So behind it a message with a deduplication id may be a copy, and waits; so does one with a key that was not
  handed out before. Others pass. They wait until somebody has the shard who can open it, or it is dropped by the queue's settings.
- A key whose rate does not allow another message yet waits, as one that comes later does; messages of other keys pass.
- A message of which `attempts_most` attempts failed is given up instead of handed out again. An attempt that ends without a failure (its
  lease ran out, its process was stopped or died with others in flight) does not count.
- In memory are the messages that may be handed out, `READ_AHEAD` of them, and those that wait for their key, its rate or their time, up
  to `WAITING`: what waits does not keep others out.
- A lease runs from when a handler has the message. A message whose decision is being appended (`pinned`) has no lease: it would be handed
  out again, and both decisions would count.

Times `now_s` are of the owner's monotonic clock, `now_ms` its idea of the log's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec

from boki_common.limits import MIB
from bokiqueue.attempts import BACKOFF_MOST_S, BACKOFF_S, backoff_s
from bokiqueue.events import Delivered, Id, Item
from bokiqueue.limit_rules import KeyRate
from bokiqueue.priority_rules import Ready
from bokiqueue.shard_state import ALONE, BY_ITSELF, SINGLY, Progress

CAREFUL: Final = 1_024
"""The most that one owner may have handed out before its DELIVER was in the log: a prefetch is no larger."""
READ_AHEAD: Final = 4_096
"""Messages that an owner keeps in memory to hand out; it reads on when half of them are over."""
WAITING: Final = 32_768
"""Messages that an owner keeps in memory at all: the ids of as many fit one record."""
WAITING_BYTES: Final = 64 * MIB
"""Of bodies, if there are more messages than `READ_AHEAD`."""


class Entry:
    """A message in memory. `pushed_ms`: its record's time."""

    __slots__ = ("due_ms", "id", "item", "pushed_ms")

    def __init__(self, id: Id, item: Item, pushed_ms: int) -> None:
        self.id = id
        self.item = item
        self.pushed_ms = pushed_ms
        self.due_ms = pushed_ms + item.delay_ms if item.delay_ms else 0


class Flight:
    """A message that is handed out.

    Attributes:
        attempt: its number. number: of this hand-out, of all that the owner makes. deadline_s: None while no lease runs.
    """

    __slots__ = ("attempt", "deadline_s", "number", "pinned")

    def __init__(self, attempt: int, number: int) -> None:
        self.attempt = attempt
        self.number = number
        self.deadline_s: float | None = None
        self.pinned = False


class Hand(NamedTuple):
    """A message to hand out. `attempt`, `number`: as of `Flight`."""

    entry: Entry
    attempt: int
    number: int


class Batch(NamedTuple):
    """What is handed out together.

    Attributes:
        delivered: what to append. logged_first: only once it is in the log may it be handed out.
        dead: is given up instead, each with the attempts that failed.
    """

    hands: list[Hand]
    delivered: Delivered | None
    logged_first: bool
    dead: list[Hand]


NO_BATCH: Final = Batch([], None, False, [])


class Deliveries:
    """See the module. Invariants: of a key at most one message is in flight; nothing is over and in memory.

    Attributes:
        reached: all up to there was read by this owner; `progress.read` may be higher, of the owner before.
        attempts_most: as in the module, 0: any number; it may be changed.
    """

    def __init__(
        self,
        id: str,
        progress: Progress,
        *,
        attempts_most: int,
        careful: bool,
        since_ms: int = 0,
        only: Callable[[Item], bool] | None = None,
        keys: KeyRate | None = None,
        ready: Ready | None = None,
        dropped: Collection[int] = (),
        backoff_s: float = BACKOFF_S,
    ) -> None:
        """
        Args:
            id: of the consumer's stream. attempts_most: 0: any number. keys: how often each may be handed out.
            backoff_s: how long a message waits after the first death that counts.
            careful: whether there was an owner before that did not give the shard back. since_ms: when this one took it, by the log's
            clock. dropped: records whose messages nobody gets. only: what this owner hands out; the rest is kept, for others.
        """
        self.progress: Final = progress
        self.reached = max(progress.floor.seqnum - 1, 0)
        self.flights: Final[dict[Id, Flight]] = {}
        self.entries: Final[dict[Id, Entry]] = {}
        self._id = id
        self._rates = keys if keys is not None else KeyRate(0.0, 0)
        self.attempts_most = attempts_most
        self._since_ms = since_ms
        self._backoff_s = backoff_s
        self._by_itself: Id | None = None
        self._only = only
        self._others = 0
        """Messages in memory that are for others."""
        self._hands = 0
        self._bytes = 0
        self._suspects: set[Id] = set()
        self._culprits: set[Id] = set()
        self._alone: dict[Id, None] = {}
        """Culprits that may be handed out now."""
        self._suspecting = careful
        self._careful = CAREFUL if careful else 0
        self._fresh: deque[Id] = deque()
        self._ready = ready if ready is not None else Ready()
        self._later: list[tuple[int, Id]] = []
        self._keys: dict[str, deque[Id]] = {}
        self._urgent: dict[str, list[int]] = {}
        self._deadlines: list[tuple[float, Id]] = []
        self._unopened: dict[int, None] = {}
        self._dropped = frozenset(dropped)
        self._behind: dict[Id, None] = {}
        self._following = 0
        """Messages that wait for another one of their key."""

    def __len__(self) -> int:
        """Of what is in memory: messages, and records that could not be opened."""
        return len(self.entries) + len(self._unopened)

    def full(self, ahead: int) -> bool:
        """Return whether no more may be read until something is over. `ahead`: `READ_AHEAD`."""
        if self._able() >= ahead:
            return True
        return len(self) >= ahead and (len(self) >= WAITING or self._bytes >= WAITING_BYTES)

    def wants_more(self, ahead: int) -> bool:
        """Return whether reading pays again, once it was `full`."""
        few = len(self) <= WAITING * 3 // 4 and self._bytes <= WAITING_BYTES * 3 // 4
        return self._able() <= ahead // 2 and (len(self) <= ahead // 2 or few)

    def _able(self) -> int:
        """Of what is in memory all but what waits for its key or its time; what cannot be opened counts."""
        return len(self) - min(len(self.entries), self._following + len(self._later) + self._others)

    @property
    def unopened(self) -> list[int]:
        """Records that could not be opened, and are kept."""
        return list(self._unopened)

    # -- what comes in

    def offer(self, seqnum: int, time_ms: int, items: tuple[Item, ...]) -> None:
        """One record of messages, in the order of the stream, read for the first time by this owner."""
        self.offer_some(seqnum, time_ms, enumerate(items))

    def offer_some(self, seqnum: int, time_ms: int, items: Iterable[tuple[int, Item]]) -> None:
        """Of one record of messages those that are left, with their numbers."""
        compares = seqnum > self.progress.read and self._undivided_from() is None
        for index, item in () if seqnum in self._dropped else items:
            id = Id(seqnum, index)
            if compares and item.dedup is not None and self.progress.window.twice(item.dedup, time_ms):
                self.progress.ends(id)
            if not self.progress.is_over(id):
                self._keep(Entry(id, item, time_ms))
        self.reaches(seqnum)

    def reaches(self, seqnum: int) -> None:
        """All up to there was read by this owner, and copies were distinguished from firsts up to what cannot be opened."""
        self.reached = max(self.reached, seqnum)
        undivided = self._undivided_from()
        self.progress.read = max(self.progress.read, self.reached if undivided is None else undivided - 1)

    def passes(self, seqnum: int) -> None:
        """A record of messages cannot be opened."""
        if seqnum not in self._dropped:
            self._unopened[seqnum] = None
        self.reaches(seqnum)

    # -- what waits behind what cannot be opened

    def _undivided_from(self) -> int | None:
        """The first record that cannot be opened of those in which copies were not distinguished from firsts; from there on none are."""
        if not self._unopened:
            return None
        return next((seqnum for seqnum in self._unopened if seqnum > self.progress.read), None)

    def _waits(self, entry: Entry) -> bool:
        """Whether a message is not handed out because of what cannot be opened."""
        if not self._unopened:
            return False
        id, item = entry.id, entry.item
        undivided = self._undivided_from() if item.dedup is not None else None
        if undivided is not None and id.seqnum > undivided:
            return True
        return item.key is not None and id.seqnum > next(iter(self._unopened)) and not self.progress.attempt(id)

    def drop(self, dropped: Collection[int]) -> None:
        """Nobody gets the messages of these records, but for those that are handed out."""
        if self._dropped == frozenset(dropped):
            return
        self._dropped = frozenset(dropped)
        for id in [id for id in self.entries if id.seqnum in self._dropped and id not in self.flights]:
            self._remove(id)
        self._unopened = {one: None for one in self._unopened if one not in self._dropped}
        self._pass_on()

    def _pass_on(self) -> None:
        """Less is left that cannot be opened: what waited behind it is distinguished from copies, and lined up."""
        undivided = self._undivided_from()
        for id, entry in list(self.entries.items()):
            dedup = entry.item.dedup
            if dedup is None or id.seqnum <= self.progress.read or (undivided is not None and id.seqnum > undivided):
                continue
            if self.progress.window.twice(dedup, entry.pushed_ms):
                self._remove(id)
        self.reaches(self.reached)
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
        """A message that is not handed out is over."""
        item = self.entries.pop(id).item
        key = item.key
        self._no_more(id, item)
        if self._only is not None and not self._only(item):
            self._others -= 1
        elif key is not None:
            self._keys[key].remove(id)
            self._less_urgent(key, item.priority)
            if not self._keys[key]:
                del self._keys[key]
            else:
                self._following -= 1

    def _no_more(self, id: Id, item: Item) -> None:
        """A message that was in memory is over."""
        self._bytes -= memoryview(item.body).nbytes
        self._suspects.discard(id)
        self._culprits.discard(id)
        self._alone.pop(id, None)
        self.progress.ends(id)

    # -- lines

    def _keep(self, entry: Entry) -> None:
        id, key = entry.id, entry.item.key
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
            self._died_with(entry)
        due_ms = self.progress.due.get(id)
        if due_ms is not None:
            entry.due_ms = due_ms
        if key is not None:
            waiting = self._keys.setdefault(key, deque())
            waiting.append(id)
            if entry.item.priority:
                self._urgent.setdefault(key, []).append(entry.item.priority)
            if len(waiting) > 1:
                self._following += 1
                self._raise_head(self.entries[waiting[0]], entry.item.priority)
                return
        self._line_up(entry)

    def _died_with(self, entry: Entry) -> None:
        """The owner before had handed it out when it died."""
        guard = self.progress.guarded.get(entry.id, 0)
        if not guard:
            self._suspects.add(entry.id)
            return
        self._culprits.add(entry.id)
        if self._failed_alone(entry.id):
            failed = self.progress.attempt(entry.id)
            entry.due_ms = self._since_ms + round(1_000 * backoff_s(failed, self._backoff_s))

    def _failed_alone(self, id: Id) -> bool:
        """Return whether the death of the process that had a culprit was a failed attempt of it."""
        guard = self.progress.guarded.get(id)
        last = bool(self.attempts_most) and self.progress.attempt(id) >= self.attempts_most
        return guard == ALONE or (guard == BY_ITSELF and not last)

    def _raise_head(self, head: Entry, priority: int) -> None:
        """What a message of its key, that came after it, makes of the first one's priority."""
        if priority > head.item.priority and not head.due_ms and head.id not in self.flights:
            self._line_up(head)

    def _priority(self, item: Item) -> int:
        """Of the first message of a key: that of the highest which waits for it."""
        return max(self._urgent.get(item.key, ()), default=0) if item.key is not None else item.priority

    def _line_up(self, entry: Entry) -> None:
        if self._waits(entry):
            self._behind[entry.id] = None
        elif entry.due_ms:
            heappush(self._later, (entry.due_ms, entry.id))
        elif entry.id in self._culprits:
            self._alone[entry.id] = None
        else:
            self._ready.add(entry.id, self._priority(entry.item))

    # -- what goes out

    def next_due_ms(self) -> int | None:
        """When, by the log's clock, something more may be handed out."""
        return self._later[0][0] if self._later else None

    def take(self, most: int, now_ms: int) -> Batch:
        """Takes what may be handed out now, `most` messages at most."""
        self._become_due(now_ms)
        if self._suspects:
            batch = self._take_suspect(most, now_ms)
            if batch is not None:
                return batch
        hands: list[Hand] = []
        dead: list[Hand] = []
        while len(hands) < most:
            next_id = self._ready.next()
            if next_id is None:
                break
            if next_id not in self.entries or next_id in self.flights or self.entries[next_id].due_ms:
                continue
            if self._waits_for_its_key(next_id, now_ms):
                continue
            self._ready.taken()
            hand = self._hand(next_id)
            self.flights[next_id] = Flight(hand.attempt, hand.number)  # it may be lined up twice
            (dead if self._too_often(hand) else hands).append(hand)
        return self._batch(hands, dead)

    def _become_due(self, now_ms: int) -> None:
        """Lines up what waited for its time."""
        while self._later and self._later[0][0] <= now_ms:
            due_ms, id = heappop(self._later)
            entry = self.entries.get(id)
            if entry is not None and id not in self.flights and entry.due_ms == due_ms:
                entry.due_ms = 0
                self._line_up(entry)

    # -- culprits

    def wants_alone(self, now_ms: int) -> bool:
        """Return whether there is a message that may be handed out only by `take_alone`."""
        self._become_due(now_ms)
        return bool(self._alone)

    def take_alone(self, now_ms: int) -> Batch:
        """Take the oldest culprit. Nothing else of the member may be handed out before it is decided, or its lease is over."""
        assert not self.flights, "it is handed out alone"
        return self._take_only(min(self._alone), now_ms, ALONE) if self.wants_alone(now_ms) else NO_BATCH

    def postpone_alone(self, now_ms: int) -> None:
        """Culprits that may be handed out wait for a while: the member is not without others."""
        for id in list(self._alone):
            del self._alone[id]
            self.entries[id].due_ms = now_ms + round(1_000 * BACKOFF_MOST_S)
            self._line_up(self.entries[id])

    # -- what is by itself

    def by_itself(self, delivered: Delivered) -> Delivered:
        """Return what is to be appended for the only message in flight, which was just handed out, and of which the member has no other."""
        (id,) = self.flights
        if self.progress.guarded.get(id) == ALONE or self.flights[id].pinned:
            return delivered
        self._by_itself = id
        changed = msgspec.structs.replace(delivered, guarded=((id.seqnum, id.number, BY_ITSELF),))
        self.progress.apply(changed)
        return changed

    def accompanied(self) -> Delivered | None:
        """Return what is to be appended, since the member has other messages in flight: that a message is by itself no longer."""
        id = self._by_itself
        if id is None or (flight := self.flights.get(id)) is None:
            self._by_itself = None
            return None
        if flight.pinned:
            return None  # its decision is on its way, and would be undone
        self._by_itself = None
        if self.progress.guarded.get(id) != BY_ITSELF:
            return None
        guarded = ((id.seqnum, id.number, SINGLY),) if id in self._suspects else ()
        delivered = Delivered(self._id, self.progress.upto, (), ((id.seqnum, id.number, flight.attempt),), (), guarded)
        self.progress.apply(delivered)
        return delivered

    # -- rates

    def rates(self, own: Mapping[str, float], per_second: float) -> None:
        """Keys may have other rates from now on; what waits for one is looked at again. `per_second`: of keys without one of their own."""
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
        """Whether its key had one too lately; if not, it has this one now."""
        entry = self.entries[id]
        entry.due_ms = self._rates.due_ms(entry.item.key, now_ms)
        if entry.due_ms:
            self._line_up(entry)
            return True
        self._rates.take(entry.item.key, now_ms)
        return False

    def _take_suspect(self, most: int, now_ms: int) -> Batch | None:
        """The oldest suspect, or what its key has before it, and nothing beside it; None: all of them wait for their time."""
        heads = {self._keys[key][0] for id in self._suspects if (key := self.entries[id].item.key) is not None}
        able = [id for id in self._ready if id in self._suspects] or [id for id in self._ready if id in heads]
        if not able and not (self.flights.keys() & (self._suspects | heads)):
            return None
        if not able or self.flights or most < 1:
            return NO_BATCH
        return self._take_only(min(able), now_ms, SINGLY if min(able) in self._suspects else 0)

    def _take_only(self, id: Id, now_ms: int, guard: int) -> Batch:
        self._ready.discard(id)
        self._alone.pop(id, None)
        if self._waits_for_its_key(id, now_ms):
            return NO_BATCH
        hand = self._hand(id)
        self._culprits.discard(id)
        return self._batch([], [hand]) if self._too_often(hand) else self._batch([hand], [], guard)

    def _hand(self, id: Id) -> Hand:
        failed_alone = id in self._culprits and self._failed_alone(id)
        self._hands += 1
        return Hand(self.entries[id], self.progress.next_attempt(id) + failed_alone, self._hands)

    def _too_often(self, hand: Hand) -> bool:
        return bool(self.attempts_most) and hand.attempt > self.attempts_most

    def _batch(self, hands: list[Hand], dead: list[Hand], guard: int = 0) -> Batch:
        """What to append for them; they are handed out from now on."""
        gone = [hand._replace(attempt=hand.attempt - 1) for hand in dead]
        for hand in (*hands, *dead):
            self.flights[hand.entry.id] = Flight(hand.attempt, hand.number)
        for hand in dead:
            self.flights[hand.entry.id].pinned = True
        if not hands:
            return Batch([], None, False, gone)
        before = self.progress.upto
        upto = max(before, *(hand.entry.id for hand in hands))
        held = []
        while self._fresh and self._fresh[0] <= upto:
            id = self._fresh.popleft()
            if id not in self.flights:
                held.append(id)
        again = tuple(
            (hand.entry.id.seqnum, hand.entry.id.number, hand.attempt) for hand in hands if hand.entry.id <= before
        )
        unopened = [one for one in self._unopened if one <= upto.seqnum and one not in self.progress.unopened]
        guarded = tuple((hand.entry.id.seqnum, hand.entry.id.number, guard) for hand in hands if guard)
        delivered = Delivered(self._id, upto, tuple(held), again, tuple(unopened), guarded)
        logged_first = bool(self._suspects) or guard > 0 or self._careful > 0
        self._careful = max(0, self._careful - (len(hands) - len(again)))
        self.progress.apply(delivered)
        return Batch(hands, delivered, logged_first, gone)

    # -- what handlers do

    def begin(self, id: Id, deadline_s: float) -> None:
        """A handler has it now."""
        self.flights[id].deadline_s = deadline_s
        heappush(self._deadlines, (deadline_s, id))

    def number(self, id: Id) -> int | None:
        """Return the number of the hand-out of a message that is handed out and undecided; None: it is not."""
        flight = self.flights.get(id)
        return None if flight is None or flight.pinned else flight.number

    def pin(self, id: Id) -> None:
        """Its decision is on its way."""
        self.flights[id].pinned = True

    def unpin(self, id: Id) -> None:
        """Its decision certainly did not happen: the handler has it still."""
        flight = self.flights[id]
        flight.pinned = False
        if flight.deadline_s is not None:
            heappush(self._deadlines, (flight.deadline_s, id))

    def over(self, id: Id) -> None:
        """It was acked, or given up."""
        entry = self.entries.pop(id)
        del self.flights[id]
        self._no_more(id, entry.item)
        key = entry.item.key
        if key is not None:
            waiting = self._keys[key]
            assert waiting[0] == id, "the messages of a key are decided in order"
            waiting.popleft()
            self._less_urgent(key, entry.item.priority)
            if waiting:
                self._following -= 1
                self._line_up(self.entries[waiting[0]])
            else:
                del self._keys[key]

    def _less_urgent(self, key: str, priority: int) -> None:
        """A message of a key is over."""
        if priority:
            self._urgent[key].remove(priority)
            if not self._urgent[key]:
                del self._urgent[key]

    def again(self, id: Id, failed: int, due_ms: int) -> None:
        """It was given back, after so many attempts that failed: it comes again when the log's clock has come there (0: at once)."""
        self.progress.due[id] = due_ms
        self.flights[id].attempt = failed
        self._returns(id, due_ms)

    def expires(self, id: Id) -> None:
        """Its lease ran out: it comes again at once, and no attempt failed."""
        self._returns(id, 0)

    def _returns(self, id: Id, due_ms: int) -> None:
        flight = self.flights.pop(id)
        entry = self.entries[id]
        entry.due_ms = due_ms
        self.progress.attempts[id] = flight.attempt
        self.progress.guarded.pop(id, None)
        self._suspects.discard(id)
        self._line_up(entry)

    @property
    def suspecting(self) -> bool:
        """Whether there are messages left that the owner before may have died of."""
        return bool(self._suspects or self._culprits)

    def undecided(self) -> list[tuple[Id, int]]:
        """Return what is handed out, and of each how many attempts failed before."""
        return sorted((id, flight.attempt - 1) for id, flight in self.flights.items())

    def not_begun(self) -> list[Id]:
        """Messages that wait for a handler."""
        return sorted(id for id, flight in self.flights.items() if flight.deadline_s is None and not flight.pinned)

    def expired(self, now_s: float) -> list[Id]:
        """Messages whose lease ran out. It is called for each message: only where one is due, all are looked at."""
        first_s = self.next_deadline_s()
        if first_s is None or first_s > now_s:
            return []
        return sorted(
            id
            for id, flight in self.flights.items()
            if not flight.pinned and flight.deadline_s is not None and flight.deadline_s <= now_s
        )

    def next_deadline_s(self) -> float | None:
        """When the first lease runs out. What is over, pinned, or was given more time is dropped when it comes to the front."""
        while self._deadlines:
            deadline_s, id = self._deadlines[0]
            flight = self.flights.get(id)
            if flight is not None and flight.deadline_s == deadline_s and not flight.pinned:
                return deadline_s
            heappop(self._deadlines)
        return None

    def purge(self, seqnum: int) -> None:
        """Messages from below are over, but for those that are handed out."""
        for id in [id for id in self.entries if id.seqnum < seqnum and id not in self.flights]:
            self._remove(id)
        while self._fresh and self._fresh[0].seqnum < seqnum:
            self._fresh.popleft()
        self._unopened = {one: None for one in self._unopened if one >= seqnum}
        self.reached = max(self.reached, seqnum - 1)
        self._pass_on()

    def raise_floor(self) -> None:
        """Forgets what is over, at the beginning."""
        first = [next(iter(self.entries), None), next((Id(one, 0) for one in self._unopened), None)]
        lowest = min((id for id in first if id is not None), default=Id(self.reached + 1, 0))
        self.progress.raise_floor(min(lowest, Id(self.reached + 1, 0)))
