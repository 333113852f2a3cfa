"""What the owner of a shard hands out next, and what it knows of what it handed out. Pure.

- Oldest first: what comes again is older than what is fresh. Of a key one message is in flight at a time; while it comes again later,
  its key waits. Messages of other keys pass.
- What the owner before may have died of, having handed it out (`suspects`), is handed out alone: one at a time and nothing beside it, so
  that a message which kills its handlers is counted by itself, and takes no others with it.
- The first `CAREFUL` fresh messages of a new owner are handed out after their DELIVER is in the log, for the owner before may have
  handed them out before his was. Else DELIVER travels while handlers work.
- What cannot be opened is passed, and kept: the floor stays below it (`shard_state`). Messages behind it, of its keys too, pass it.
- A key whose rate does not allow another message yet waits, as one that comes later does; messages of other keys pass.
- A message that was handed out `max_deliveries` times is given up instead of handed out again.
- A lease runs from when a handler has the message. A message whose decision is being appended (`pinned`) has no lease: it would be handed
  out again, and both decisions would count.

Times `now_s` are of the owner's monotonic clock, `now_ms` its idea of the log's.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from bokiqueue.events import Delivered, Id, Item
from bokiqueue.limit_rules import KeyRate
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
    """See the module. Invariants: of a key at most one message is in flight; nothing is over and in memory."""

    def __init__(
        self, id: str, progress: Progress, *, max_deliveries: int, careful: bool, keys: KeyRate | None = None
    ) -> None:
        """
        Args:
            id: of the consumer's stream. max_deliveries: 0: as often as it takes. keys: how often each may be handed out.
            careful: whether somebody owned the shard before, and did not give it back.
        """
        self.progress: Final = progress
        self.flights: Final[dict[Id, Flight]] = {}
        self.entries: Final[dict[Id, Entry]] = {}
        self._id = id
        self._rates = keys if keys is not None else KeyRate(0.0, 0)
        self._max_deliveries = max_deliveries
        self._suspects: set[Id] = set()
        self._suspecting = careful
        self._careful = CAREFUL if careful else 0
        self._fresh: deque[Id] = deque()
        self._ready: list[Id] = []
        self._later: list[tuple[int, Id]] = []
        self._keys: dict[str, deque[Id]] = {}
        self._deadlines: list[tuple[float, Id]] = []
        self._unopened: dict[int, None] = {}

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
        known = seqnum <= self.progress.read
        for index, item in enumerate(items):
            id = Id(seqnum, index)
            if not known and item.dedup is not None and self.progress.window.twice(item.dedup, time_ms):
                self.progress.ends(id)
            if not self.progress.is_over(id):
                self._keep(Entry(id, item, time_ms))
        self.progress.read = max(self.progress.read, seqnum)

    def passes(self, seqnum: int) -> None:
        """A record of messages cannot be opened."""
        self._unopened[seqnum] = None
        self.progress.read = max(self.progress.read, seqnum)

    def _keep(self, entry: Entry) -> None:
        id, key = entry.id, entry.item.key
        self.entries[id] = entry
        if id > self.progress.upto:
            self._fresh.append(id)
        elif self._suspecting and self.progress.is_delivered(id):
            self._suspects.add(id)
        due_ms = self.progress.due.get(id)
        if due_ms is not None:
            entry.due_ms = due_ms
        if key is not None:
            waiting = self._keys.setdefault(key, deque())
            waiting.append(id)
            if len(waiting) > 1:
                return
        self._line_up(entry)

    def _line_up(self, entry: Entry) -> None:
        if entry.due_ms:
            heappush(self._later, (entry.due_ms, entry.id))
        else:
            heappush(self._ready, entry.id)

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
                heappush(self._ready, id)
        if self._suspects:
            return self._take_suspect(most, now_ms)
        hands: list[Hand] = []
        dead: list[Hand] = []
        while self._ready and len(hands) < most:
            id = heappop(self._ready)
            if id not in self.entries or id in self.flights or self.entries[id].due_ms:
                continue
            if self._waits_for_its_key(id, now_ms):
                continue
            hand = self._hand(id)
            (dead if self._too_often(hand) else hands).append(hand)
        return self._batch(hands, dead)

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
        """The oldest of those that somebody may have died of, alone."""
        if self.flights or most < 1:
            return Batch([], None, False, [])
        able = [id for id in self._ready if id in self._suspects]
        if not able:  # those that are left wait for their key, whose head is no suspect
            return self._take_one_before(now_ms)
        return self._take_alone(min(able), now_ms)

    def _take_alone(self, id: Id, now_ms: int) -> Batch:
        self._ready.remove(id)
        heapify(self._ready)
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
        return self._take_alone(min(able), now_ms)

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
            if waiting:
                self._line_up(self.entries[waiting[0]])
            else:
                del self._keys[key]

    def again(self, id: Id, attempt: int, due_ms: int) -> None:
        """It was given back after so many deliveries: it comes again, when the log's clock says so (0: at once)."""
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
        """Messages whose lease ran out. It is asked for each message: only where one is due, all are looked at."""
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
            key = self.entries.pop(id).item.key
            self._suspects.discard(id)
            self.progress.ends(id)
            if key is not None:
                self._keys[key].remove(id)
                if not self._keys[key]:
                    del self._keys[key]
        for waiting in self._keys.values():
            if waiting[0] not in self.flights:
                self._line_up(self.entries[waiting[0]])
        while self._fresh and self._fresh[0].seqnum < seqnum:
            self._fresh.popleft()
        self._unopened = {one: None for one in self._unopened if one >= seqnum}
        self.progress.read = max(self.progress.read, seqnum - 1)

    def raise_floor(self) -> None:
        """Forgets what is over, at the beginning."""
        first = [next(iter(self.entries), None), next((Id(one, 0) for one in self._unopened), None)]
        self.progress.raise_floor(min((id for id in first if id is not None), default=None))
