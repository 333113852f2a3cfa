"""What the owner of a shard hands out next, and what it knows of what it handed out. Pure.

- By priority, then oldest first (`priority_rules`): what comes again is older than what is fresh. It is among what is in memory
  (`READ_AHEAD`). Of a key one message is in flight at a time; while it comes again later, its key waits. Messages of other keys pass.
- Of a key the oldest comes next, whatever its priority, with the highest priority of those that wait for it: it stands in their way.
- What the owner before may have died of, having handed it out (`suspects`), is handed out one at a time and with nothing beside it, so
  that a message which kills its handlers is counted by itself, and takes no others with it.
- The first `CAREFUL` fresh messages of a new owner are handed out after their DELIVER is in the log, for the owner before may have
  handed them out before his was. Else DELIVER travels while handlers work.
- What cannot be opened is passed, and kept: the floor stays below it (`shard_state`). The keys of its messages are unknown, and so is
  whose copies they are. So behind it a message with a deduplication id may be a copy, and waits; so does one with a key that was not
  handed out before. Others pass. They wait until somebody has the shard who can open it, or it is dropped by the queue's settings.
- A key whose rate does not allow another message yet waits, as one that comes later does; messages of other keys pass.
- A message that was handed out `max_deliveries` times is given up instead of handed out again.
- A lease runs from when a handler has the message. A message whose decision is being appended (`pinned`) has no lease: it would be handed
  out again, and both decisions would count.

Times `now_s` are of the owner's monotonic clock, `now_ms` its idea of the log's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

from bokiqueue.events import Delivered, Id, Item
from bokiqueue.limit_rules import KeyRate
from bokiqueue.priority_rules import Ready
from bokiqueue.shard_state import Progress

CAREFUL: Final = 1_024
"""The most that one owner may have handed out before its DELIVER was in the log: a prefetch is no larger."""
READ_AHEAD: Final = 4_096
"""Messages that an owner keeps in memory; it reads on when half of them are over."""


class Entry:
    """A message in memory. `pushed_ms`: its record's time."""

    __slots__ = ("due_ms", "id", "item", "pushed_ms")

    def __init__(self, id: Id, item: Item, pushed_ms: int) -> None:
        self.id = id
        self.item = item
        self.pushed_ms = pushed_ms
        self.due_ms = pushed_ms + item.delay_ms if item.delay_ms else 0


class Flight:
    """A message that is handed out. `deadline_s`: None while no lease runs."""

    __slots__ = ("attempt", "deadline_s", "pinned")

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.deadline_s: float | None = None
        self.pinned = False


class Hand(NamedTuple):
    """A message to hand out."""

    entry: Entry
    attempt: int


class Batch(NamedTuple):
    """What is handed out together.

    Attributes:
        delivered: what to append. logged_first: only once it is in the log may it be handed out.
        dead: is given up instead, each with the deliveries it had.
    """

    hands: list[Hand]
    delivered: Delivered | None
    logged_first: bool
    dead: list[Hand]


class Deliveries:
    """See the module. Invariants: of a key at most one message is in flight; nothing is over and in memory.

    Attributes:
        reached: all up to there was read by this owner; `progress.read` may be higher, of who had the shard before.
    """

    def __init__(
        self,
        id: str,
        progress: Progress,
        *,
        max_deliveries: int,
        careful: bool,
        keys: KeyRate | None = None,
        ready: Ready | None = None,
        dropped: Collection[int] = (),
    ) -> None:
        """
        Args:
            id: of the consumer's stream. max_deliveries: 0: as often as it takes. keys: how often each may be handed out.
            careful: whether somebody owned the shard before, and did not give it back. dropped: records whose messages nobody gets.
        """
        self.progress: Final = progress
        self.reached = max(progress.floor.seqnum - 1, 0)
        self.flights: Final[dict[Id, Flight]] = {}
        self.entries: Final[dict[Id, Entry]] = {}
        self._id = id
        self._rates = keys if keys is not None else KeyRate(0.0, 0)
        self._max_deliveries = max_deliveries
        self._suspects: set[Id] = set()
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

    def __len__(self) -> int:
        """Of what is in memory: messages, and records that could not be opened."""
        return len(self.entries) + len(self._unopened)

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
        self._suspects.discard(id)
        self.progress.ends(id)
        if key is not None:
            self._keys[key].remove(id)
            self._less_urgent(key, item.priority)
            if not self._keys[key]:
                del self._keys[key]

    # -- lines

    def _keep(self, entry: Entry) -> None:
        id, key = entry.id, entry.item.key
        self.entries[id] = entry
        head = self.entries[self._keys[key][0]] if key is not None and key in self._keys else entry
        if id > self.progress.upto:
            self._fresh.append(id)
        elif self._suspecting and self.progress.is_delivered(id) and not self._waits(head):
            self._suspects.add(id)
        due_ms = self.progress.due.get(id)
        if due_ms is not None:
            entry.due_ms = due_ms
        if key is not None:
            waiting = self._keys.setdefault(key, deque())
            waiting.append(id)
            if entry.item.priority:
                self._urgent.setdefault(key, []).append(entry.item.priority)
            if len(waiting) > 1:
                self._raise_head(self.entries[waiting[0]], entry.item.priority)
                return
        self._line_up(entry)

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
        else:
            self._ready.add(entry.id, self._priority(entry.item))

    # -- what goes out

    def next_due_ms(self) -> int | None:
        """When, by the log's clock, something more may be handed out."""
        return self._later[0][0] if self._later else None

    def take(self, most: int, now_ms: int) -> Batch:
        """Takes what may be handed out now, `most` messages at most."""
        while self._later and self._later[0][0] <= now_ms:
            due_ms, id = heappop(self._later)
            entry = self.entries.get(id)
            if entry is not None and id not in self.flights and entry.due_ms == due_ms:
                entry.due_ms = 0
                self._ready.add(id, self._priority(entry.item))
        if self._suspects:
            return self._take_suspect(most, now_ms)
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
            self.flights[next_id] = Flight(hand.attempt)  # it may be lined up twice
            (dead if self._too_often(hand) else hands).append(hand)
        return self._batch(hands, dead)

    def rates(self, own: Mapping[str, float]) -> None:
        """Keys may have other rates from now on; what waits for one is looked at again."""
        before, self._rates.own = self._rates.own, own
        for key in dict.fromkeys((*before, *own)):
            if before.get(key) == own.get(key) or key not in self._keys:
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

    def _take_suspect(self, most: int, now_ms: int) -> Batch:
        """The oldest of those that somebody may have died of, and nothing beside it."""
        if self.flights or most < 1:
            return Batch([], None, False, [])
        able = [id for id in self._ready if id in self._suspects]
        if not able:  # those that are left wait for their key, whose head is no suspect
            return self._take_one_before(now_ms)
        return self._take_only(min(able), now_ms)

    def _take_only(self, id: Id, now_ms: int) -> Batch:
        self._ready.discard(id)
        if self._waits_for_its_key(id, now_ms):
            return Batch([], None, False, [])
        hand = self._hand(id)
        return self._batch([], [hand]) if self._too_often(hand) else self._batch([hand], [])

    def _take_one_before(self, now_ms: int) -> Batch:
        """Something on which a suspect waits."""
        heads = {self._keys[key][0] for id in self._suspects if (key := self.entries[id].item.key) is not None}
        able = [id for id in self._ready if id in heads]
        if not able:
            return Batch([], None, False, [])
        return self._take_only(min(able), now_ms)

    def _hand(self, id: Id) -> Hand:
        return Hand(self.entries[id], self.progress.attempt(id) + 1)

    def _too_often(self, hand: Hand) -> bool:
        return bool(self._max_deliveries) and hand.attempt > self._max_deliveries

    def _batch(self, hands: list[Hand], dead: list[Hand]) -> Batch:
        """What to append for them; they are handed out from now on."""
        gone = [Hand(hand.entry, hand.attempt - 1) for hand in dead]
        for hand in (*hands, *dead):
            self.flights[hand.entry.id] = Flight(hand.attempt)
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
        delivered = Delivered(self._id, upto, tuple(held), again, tuple(unopened))
        logged_first = bool(self._suspects) or self._careful > 0
        self._careful = max(0, self._careful - (len(hands) - len(again)))
        self.progress.apply(delivered)
        return Batch(hands, delivered, logged_first, gone)

    # -- what handlers do

    def begin(self, id: Id, deadline_s: float) -> None:
        """A handler has it now."""
        self.flights[id].deadline_s = deadline_s
        heappush(self._deadlines, (deadline_s, id))

    def attempt(self, id: Id) -> int | None:
        """At which attempt a message is handed out and undecided; None: it is not."""
        flight = self.flights.get(id)
        return None if flight is None or flight.pinned else flight.attempt

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
        self._suspects.discard(id)
        self.progress.ends(id)
        key = entry.item.key
        if key is not None:
            waiting = self._keys[key]
            assert waiting[0] == id, "the messages of a key are decided in order"
            waiting.popleft()
            self._less_urgent(key, entry.item.priority)
            if waiting:
                self._line_up(self.entries[waiting[0]])
            else:
                del self._keys[key]

    def _less_urgent(self, key: str, priority: int) -> None:
        """A message of a key is over."""
        if priority:
            self._urgent[key].remove(priority)
            if not self._urgent[key]:
                del self._urgent[key]

    def again(self, id: Id, attempt: int, due_ms: int) -> None:
        """It was given back after so many deliveries: it comes again, when the log's clock has come there (0: at once)."""
        self.progress.due[id] = due_ms
        self.flights[id].attempt = attempt
        self._returns(id, due_ms)

    def expires(self, id: Id) -> None:
        """Its lease ran out: it comes again at once."""
        self._returns(id, 0)

    def _returns(self, id: Id, due_ms: int) -> None:
        flight = self.flights.pop(id)
        entry = self.entries[id]
        entry.due_ms = due_ms
        self.progress.attempts[id] = flight.attempt
        self._suspects.discard(id)
        self._line_up(entry)

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
