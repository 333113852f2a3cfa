"""A model of priorities in a shard, over the queue's own rules (`delivery_rules`, `priority_rules`, `shard_state`): messages of two
priorities, with and without a key, are pushed, delivered, returned and acked in any order, and another owner takes over at any time with
the state of the log. Each message is acked once, its deliveries are counted correctly, the messages of a key keep their order, and the
oldest ready message waits for a bounded number of others. If a rule is turned off, the search finds an execution that breaks this.

An owner's memory is a function of its steps: each world has these as a tuple, and rebuilds the owner from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest

from bokiqueue.model.delivery_rules import DeliverySchedule
from bokiqueue.model.events import Acked, ConsumerEvent, Delivered, Id, Item, Nacked
from bokiqueue.model.priority_rules import ReadyMessages
from bokiqueue.model.shard_state import StreamRecord, fold
from libs.tests.models.search import search

BODY = msgspec.Raw(b"\xc0")
EVERY = 2
"""One of so many deliveries is of the oldest message."""


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    old_have_turns: bool = True
    says_what_is_passed: bool = True
    keys_keep_order: bool = True


@dataclass(frozen=True)
class Shard:
    """The log, and the steps of its owner since the takeover.

    Attributes:
        kinds: (key, priority) of messages that are still to be pushed. done: of the owner, in order: what, and with which message.
        handed: messages in the order in which they were handed out, over all owners.
        waits: for how many others the oldest that is ready has waited.
    """

    rules: Rules
    kinds: tuple[tuple[str | None, int], ...]
    takeovers: int = 0
    nacks: int = 0
    pushes: tuple[tuple[str | None, int], ...] = ()
    events: tuple[ConsumerEvent, ...] = ()
    read: int = 0
    folded: int = 0
    done: tuple[tuple[str, int], ...] = ()
    handed: tuple[int, ...] = ()
    waits: int = 0
    wrong: str | None = None

    def _item(self, message: int) -> Item:
        key, priority = self.pushes[message - 1]
        return Item(BODY, key if self.rules.keys_keep_order else None, None, 0, None, priority)

    def _owner(self) -> DeliverySchedule:
        """Rebuild the owner from its steps."""
        rows = [StreamRecord(place, 0, "", [event]) for place, event in enumerate(self.events[: self.folded], 1)]
        every = EVERY if self.rules.old_have_turns else 1_000
        progress = fold(rows, 1, 0).progress
        owner = DeliverySchedule("s", progress, attempts_most=0, careful=False, ready=ReadyMessages(oldest_every=every))
        for what, message in self.done:
            id = Id(message, 0)
            if what == "read":
                owner.offer(message, 0, (self._item(message),))
            elif what == "take":
                owner.take(1, 0)
            elif what == "ack":
                owner.over(id)
            else:
                owner.again(id, owner.flights[id].attempt, 0)
        return owner

    def fault(self) -> str | None:
        if self.wrong is not None:
            return self.wrong
        if next(self.moves(), None) is None:
            acked = [id.seqnum for event in self.events if isinstance(event, Acked) for id in event.ids]
            if sorted(acked) != list(range(1, len(self.pushes) + 1)):
                return f"acked are {acked} of {len(self.pushes)}"
        return None

    def moves(self) -> Iterator[tuple[str, Shard]]:
        if self.kinds:
            kind, *rest = self.kinds
            yield f"a push of {kind}", replace(self, kinds=tuple(rest), pushes=(*self.pushes, kind))
        if self.read < len(self.pushes):
            message = self.read + 1
            yield f"{message} is read", replace(self, read=message, done=(*self.done, ("read", message)))
        owner = self._owner()
        flights = list(owner.flights.items())
        yield from self._taken(owner)
        for id, flight in flights:
            message = id.seqnum
            acked = Acked("s", (id,))
            yield f"{message} is acked", self._decided(("ack", message), acked)
            if self.nacks:
                nacked = Nacked("s", ((message, 0, flight.attempt, 0),))
                yield f"{message} is nacked", replace(self._decided(("nack", message), nacked), nacks=self.nacks - 1)
        if self.takeovers:
            fresh = replace(self, takeovers=self.takeovers - 1, read=0, folded=len(self.events), done=(), waits=0)
            yield "another takes over", fresh

    def _decided(self, did: tuple[str, int], event: ConsumerEvent) -> Shard:
        return replace(self, done=(*self.done, did), events=(*self.events, event))

    def _taken(self, owner: DeliverySchedule) -> Iterator[tuple[str, Shard]]:
        ready = {id for id in owner._ready if id in owner.entries and id not in owner.flights}
        had = {id: owner.progress.attempt(id) for id in owner.entries}
        batch = owner.take(1, 0)
        if not batch.deliveries or batch.delivered is None:
            return
        delivery = batch.deliveries[0]
        message = delivery.entry.id.seqnum
        delivered = batch.delivered if self.rules.says_what_is_passed else _without_held(batch.delivered)
        waits = 0 if message == min(ready).seqnum else self.waits + 1
        after = replace(self._decided(("take", message), delivered), handed=(*self.handed, message), waits=waits)
        yield f"{message} is handed out", replace(after, wrong=after._wrong(had[delivery.entry.id] + 1))

    def _wrong(self, attempt: int) -> str | None:
        """Return what is wrong with the last delivery, or None."""
        message = self.handed[-1]
        if attempt > self.handed.count(message):
            return f"{message} is counted as handed out {attempt} times, and was {self.handed.count(message)}"
        if self.waits >= EVERY:
            return f"the oldest that is ready waited for {self.waits} others"
        key = self.pushes[message - 1][0]
        acked = {id.seqnum for event in self.events if isinstance(event, Acked) for id in event.ids}
        before = [one for one in range(1, message) if key is not None and self.pushes[one - 1][0] == key]
        if not set(before) <= acked:
            return f"{message} passed {before} of its key"
        return None


def _without_held(event: Delivered) -> Delivered:
    return msgspec.structs.replace(event, held=())


KEYS = (("k", 0), ("k", 1), (None, 1))
FREE = ((None, 0), (None, 1), (None, 1), (None, 2))


@pytest.mark.parametrize(
    "start",
    [
        Shard(Rules(), FREE),
        Shard(Rules(), KEYS, nacks=1),
        Shard(Rules(), KEYS, takeovers=1),
        Shard(Rules(), FREE[:3], 1),
    ],
    ids=["levels", "keys given back", "keys taken over", "levels taken over"],
)
def test_each_message_is_acked_once_in_its_turn(start: Shard) -> None:
    found = search(start)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 100


@pytest.mark.parametrize(
    ("rule", "start", "fault"),
    [
        ("old_have_turns", Shard(Rules(), FREE), "the oldest that is ready waited"),
        ("says_what_is_passed", Shard(Rules(), FREE[:2], takeovers=1), "counted as handed out 2 times"),
        ("keys_keep_order", Shard(Rules(), KEYS), "of its key"),
    ],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(rule: str, start: Shard, fault: str) -> None:
    found = search(replace(start, rules=replace(Rules(), **{rule: False})))
    assert found.fault is not None
    assert fault in found.fault
    assert found.path
