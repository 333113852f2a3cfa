"""Attempts of messages that failed since a process died, counted from the log alone, by a plain fold of its records.

`bokiqueue` counts such an attempt only if the message was by itself or alone when its process died, and a member that is silent for its
lease counts as one that died, whether or not it lives on (docs/queue.md). So an attempt counts here if

- the next delivery of the message says that it failed, though no NACK did, or the message is given up instead of that delivery;
- the log had the mark that the message is by itself or alone;
- a member took the shard after the delivery from one of which the log had no heartbeat for its lease, or from an earlier start of its name.

A delivery that says so without the last two is wrong.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from bokilib.append.fence import Claimed
from bokilib.follow.members import Heartbeat
from bokilib.records.events import Envelope, Picker
from bokiqueue.model.events import PICKER as EVENTS
from bokiqueue.model.events import Acked, Config, Dead, Delivered, Id, Nacked
from bokiqueue.model.rebalance_rules import fence_name
from bokiqueue.model.shard_state import ALONE, BY_ITSELF

LIBRARY: Final[Picker[Claimed | Heartbeat]] = Picker("lib", (Claimed, Heartbeat))


class Holder(NamedTuple):
    """The member that a claim names: `by` is the incarnation of its process."""

    by: str
    who: str


class Delivery(NamedTuple):
    """The newest delivery of a message. `failed`: attempts that failed before it. `waits`: a NACK ended it."""

    failed: int = 0
    guard: int = 0
    at: int = 0
    waits: bool = False


class Deaths:
    """Attempts that failed by deaths. `counted`: (group, message) → how many; `given_up`: messages that became dead letters."""

    def __init__(self, queue: str, shards: int) -> None:
        self.counted: Final[Counter[tuple[str, Id]]] = Counter()
        self.given_up: Final[set[tuple[str, Id]]] = set()
        self._queue: Final = queue
        self._shards: Final = shards
        self._beats: Final[dict[tuple[str, Holder], tuple[int, int]]] = {}
        """(group, member) → time and lease of its newest heartbeat."""
        self._holders: Final[dict[str, Holder]] = {}
        self._taken: Final[dict[str, int]] = {}
        """Fence → the newest claim that replaced a silent member, or an earlier start of one."""
        self._deliveries: Final[dict[tuple[str, Id], Delivery]] = {}
        self._registered: Final[dict[str, int]] = {}

    def apply(self, seqnum: int, time_ms: int, envelope: Envelope) -> None:
        """Add a record. Raises AssertionError if it counts an attempt as failed that did not fail."""
        for event in LIBRARY.of(seqnum, envelope):
            if isinstance(event, Heartbeat):
                self._beats[event.group, Holder(envelope.by, event.member)] = (time_ms, event.lease_ms)
            else:
                self._claimed(seqnum, time_ms, envelope.by, event)
        for one in EVENTS.of(seqnum, envelope):
            if isinstance(one, Config):
                if one.queue == self._queue:
                    self._settings(one)
            elif isinstance(one, (Delivered, Nacked, Acked, Dead)):
                queue, shard, group = one.id.split("/")
                if queue == self._queue:
                    self._applied(seqnum, fence_name(queue, int(shard), group), group, one)

    def _settings(self, config: Config) -> None:
        """Forget what a registration of before has left: messages begin with no failed attempt."""
        for group, since in config.registered.items():
            if self._registered.get(group) != since:
                self._registered[group] = since
                for of, id in [one for one in self._deliveries if one[0] == group]:
                    del self._deliveries[of, id]

    def _claimed(self, seqnum: int, time_ms: int, by: str, claim: Claimed) -> None:
        before = self._holders.get(claim.fence)
        if not claim.who:
            named = claim.token.split("/")  # a carrier names the member, which has the shard still
            if named[0] != "carried" or len(named) < 3:
                self._holders.pop(claim.fence, None)
            return
        now = Holder(by, claim.who)
        group = claim.fence.rpartition(" for ")[2].strip("'")
        if before is not None and before != now:
            beaten_ms, lease_ms = self._beats.get((f"queue/{self._queue}/{group}", before), (0, 0))
            if before.who == now.who or time_ms - beaten_ms >= lease_ms:
                self._taken[claim.fence] = seqnum
        self._holders[claim.fence] = now

    def _applied(self, seqnum: int, fence: str, group: str, event: Delivered | Nacked | Acked | Dead) -> None:
        if isinstance(event, Delivered):
            for place, number, attempt in event.again:
                id = Id(place, number)
                if attempt - 1 > self._failed(group, id):
                    self._died(fence, group, id, seqnum)
                self._deliveries[group, id] = Delivery(attempt - 1, 0, seqnum)
            for place, number, guard in event.guarded:
                id = Id(place, number)
                self._deliveries[group, id] = self._delivery(group, id)._replace(guard=guard, at=seqnum)
        elif isinstance(event, Nacked):
            for place, number, attempt, _ in event.items:
                self._deliveries[group, Id(place, number)] = Delivery(attempt, waits=True)
        elif isinstance(event, Dead):
            for id in event.ids:
                last = self._delivery(group, id)
                if last.guard == ALONE and not last.waits and self._taken.get(fence, 0) > last.at:
                    self.counted[group, id] += 1
                self.given_up.add((group, id))

    def _failed(self, group: str, id: Id) -> int:
        return self._delivery(group, id).failed

    def _delivery(self, group: str, id: Id) -> Delivery:
        return self._deliveries.get((group, id), Delivery())

    def _died(self, fence: str, group: str, id: Id, seqnum: int) -> None:
        """Count a delivery that failed without a NACK."""
        last = self._delivery(group, id)
        assert last.guard in (ALONE, BY_ITSELF), f"{group}: record {seqnum} says that {id} killed its process: {last}"
        taken = self._taken.get(fence, 0)
        assert taken > last.at, (
            f"{group}: record {seqnum} says that {id} killed its process, which was not lost: {last}"
        )
        self.counted[group, id] += 1
