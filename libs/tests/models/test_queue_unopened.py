"""A model of a shard with records that only some owners can open, over the queue's own rules (`delivery_rules`): owners that can and that
cannot open them follow each other at any time, with checkpoints, and a record may be dropped. One of several copies is acked, the messages
of a key in order, and all of them in the end, if the last owner can open them. If a rule is turned off, the search finds an execution
that breaks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import msgspec
import pytest

from bokiqueue.model.delivery_rules import NO_BATCH, BufferedMessage, DeliveryBatch, DeliverySchedule
from bokiqueue.model.events import Acked, Checkpoint, ConsumerEvent, Delivered, Id, Item
from bokiqueue.model.shard_state import StreamRecord, fold
from libs.tests.models.search import search

FOR_EVER = 1 << 40
BODY = msgspec.Raw(msgspec.msgpack.encode(None))


class Push(NamedTuple):
    """A message, the only one of its record. `sealed`: only some owners can open it."""

    dedup: str | None = None
    key: str | None = None
    sealed: bool = False


class CopiesPass(DeliverySchedule):
    """If off, a message that may be a copy waits."""

    def _waits(self, entry: BufferedMessage) -> bool:
        return entry.item.key is not None and super()._waits(BufferedMessage(entry.id, Item(BODY, "k"), 0))


class KeysPass(DeliverySchedule):
    """If off, a message with a key waits."""

    def _waits(self, entry: BufferedMessage) -> bool:
        return entry.item.dedup is not None and super()._waits(BufferedMessage(entry.id, Item(BODY, None, "x"), 0))


class ReadIsReached(DeliverySchedule):
    """If off, a checkpoint distinguishes copies only up to the first record that cannot be opened."""

    def reaches(self, seqnum: int) -> None:
        super().reaches(seqnum)
        self.progress.read = max(self.progress.read, self.reached)


class SuspectsWait(DeliverySchedule):
    """If off, no message waits for one that cannot be delivered."""

    def _keep(self, entry: BufferedMessage) -> None:
        super()._keep(entry)
        if self._suspecting and self.progress.is_delivered(entry.id):
            self._suspects.add(entry.id)

    def _take_suspect(self, most: int, now_ms: int) -> DeliveryBatch | None:
        return super()._take_suspect(most, now_ms) or NO_BATCH


Act: TypeAlias = tuple[str, int]
Line: TypeAlias = Push | ConsumerEvent | None
"""The message at a place of the log; None for a claim or settings."""


@dataclass(frozen=True)
class Shard:
    """The log by places from 1, and the steps of the owner since its claim.

    Attributes:
        next_owners: whether each can open sealed records. acts: reads, takes and acks of the owner, which determine its state.
    """

    kind: type[DeliverySchedule]
    pushes: tuple[Push, ...]
    next_owners: tuple[bool, ...]
    checkpoints: int = 0
    drops: int = 0
    able: bool = False
    claim: int = 0
    acts: tuple[Act, ...] = ()
    dropped: frozenset[int] = frozenset()
    log: tuple[Line, ...] = (None,)

    def owner(self) -> DeliverySchedule:
        """Rebuild the owner from its acts."""
        rows = [
            StreamRecord(place, place, "", [line])
            for place, line in enumerate(self.log[: self.claim], 1)
            if isinstance(line, Delivered | Acked | Checkpoint)
        ]
        progress = fold(rows, 1, FOR_EVER).progress
        schedule = self.kind("s", progress, attempts_most=0, careful=bool(self.claim), dropped=())
        for act, place in self.acts:
            self._act(schedule, act, place)
        return schedule

    def _act(self, schedule: DeliverySchedule, act: str, place: int) -> None:
        if act == "take":
            taken(schedule, place)
        elif act == "ack":
            schedule.over(Id(place, 0))
        elif act == "drop":
            schedule.drop([place])
        else:
            push = self.log[place - 1]
            assert isinstance(push, Push)
            if push.sealed and not self.able:
                schedule.passes(place)
            else:
                schedule.offer(place, place, (Item(BODY, push.key, push.dedup),))

    def push(self, place: int) -> Push:
        found = self.log[place - 1]
        assert isinstance(found, Push)
        return found

    def acked(self) -> list[int]:
        return [id.seqnum for line in self.log if isinstance(line, Acked) for id in line.ids]

    def fault(self) -> str | None:
        acked = self.acked()
        effects = [self.push(place).dedup or place for place in acked]
        if len(effects) != len(set(effects)):
            return f"handled twice: {acked}"
        keyed = [place for place in acked if self.push(place).key]
        if keyed != sorted(keyed):
            return f"out of order: {keyed}"
        if next(self.moves(), None) is None:
            wanted = {
                push.dedup or place
                for place, push in enumerate(self.log, 1)
                if isinstance(push, Push) and not self._is_dropped(place) and (self.able or self._is_free(place))
            }
            if wanted - set(effects):
                return f"never handled: {sorted(map(str, wanted - set(effects)))}"
        return None

    def _is_dropped(self, place: int) -> bool:
        """Return whether the message is acked, or may be a copy of one that is."""
        dedup = self.push(place).dedup
        return place in self.dropped or (dedup is not None and dedup in {self.push(one).dedup for one in self.dropped})

    def _is_free(self, place: int) -> bool:
        """Return whether an owner that cannot open all records delivers it."""
        push = self.push(place)
        closed = [at for at, one in enumerate(self.log, 1) if isinstance(one, Push) and one.sealed]
        behind = any(at <= place and at not in self.dropped for at in closed)
        return not push.sealed and not ((push.dedup or push.key) and behind)

    def moves(self) -> Iterator[tuple[str, Shard]]:
        if self.pushes:
            first, *rest = self.pushes
            yield "a push", replace(self, pushes=tuple(rest), log=(*self.log, first))
        if self.next_owners:
            able, *others = self.next_owners
            after = replace(self, next_owners=tuple(others), able=able, claim=len(self.log) + 1, log=(*self.log, None))
            acts = tuple(("drop", place) for place in sorted(self.dropped))
            yield f"the next owner, who can {'' if able else 'not '}open all", replace(after, acts=acts)
        owner = self.owner()
        unread = [place for place, line in enumerate(self.log, 1) if isinstance(line, Push) and place > owner.reached]
        if unread:
            yield f"reads {unread[0]}", replace(self, acts=(*self.acts, ("read", unread[0])))
        for id in owner.flights:
            done = replace(self, acts=(*self.acts, ("ack", id.seqnum)), log=(*self.log, Acked("s", (id,))))
            yield f"acks {id.seqnum}", done
        if self.checkpoints:
            owner.raise_floor()
            made = Checkpoint("s", len(self.log), 0, 1, owner.progress.encode())
            yield "a checkpoint", replace(self, checkpoints=self.checkpoints - 1, log=(*self.log, made))
        for place in self._droppable():
            after = replace(self, drops=self.drops - 1, dropped=self.dropped | {place}, log=(*self.log, None))
            yield f"{place} is dropped", replace(after, acts=(*self.acts, ("drop", place)))
        batch = taken(owner, len(self.log))
        if batch.delivered is not None:
            log = (*self.log, batch.delivered)
            yield (
                f"hands out {batch.deliveries[0].entry.id.seqnum}",
                replace(self, acts=(*self.acts, ("take", len(self.log))), log=log),
            )

    def _droppable(self) -> list[int]:
        places = [at for at, line in enumerate(self.log, 1) if isinstance(line, Push) and line.sealed]
        return [at for at in places if self.drops and at not in self.dropped and at not in self.acked()]


def taken(schedule: DeliverySchedule, now_ms: int) -> DeliveryBatch:
    """Return the next message to deliver; one that is delivered alone only if no other is in flight."""
    batch = schedule.take(1, now_ms)
    if batch.delivered is None and not schedule.flights and schedule.wants_alone(now_ms):
        return schedule.take_alone(now_ms)
    return batch


X, SEALED_X = Push("x"), Push("x", sealed=True)
K, SEALED_K = Push(key="k"), Push(key="k", sealed=True)
STARTS = {
    "copies": ((SEALED_X, X), (False, True), 1, 0),
    "a sealed copy": ((X, SEALED_X), (False, True), 0, 0),
    "who can, then who cannot": ((SEALED_X, X, X), (True, False, True), 0, 0),
    "a key": ((SEALED_K, K), (False, True), 1, 0),
    "a key, the other way": ((SEALED_K, K), (True, False, True), 0, 0),
    "others pass": ((SEALED_X, Push("y"), Push()), (True, False), 0, 0),
    "a record is dropped": ((SEALED_X, X), (False, True), 0, 1),
    "dropped after all": ((SEALED_K, K), (True, False), 0, 1),
}
LARGER = {
    "a key": ((K, SEALED_K, K), (False, True), 1, 0),
    "both": ((SEALED_X, K, X), (True, False, True), 0, 0),
    "dropped": ((SEALED_X, X, K), (False, True), 0, 1),
}


def world(start: str, kind: type[DeliverySchedule] = DeliverySchedule) -> Shard:
    return Shard(kind, *STARTS[start])


@pytest.mark.parametrize("start", STARTS)
def test_of_copies_one_is_handled_and_keys_keep_their_order(start: str) -> None:
    found = search(world(start))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 100


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", LARGER)
def test_it_is_so_with_larger_bounds(start: str) -> None:
    found = search(Shard(DeliverySchedule, *LARGER[start]))
    assert (found.fault, found.path) == (None, [])


@pytest.mark.parametrize(
    ("kind", "start", "fault"),
    [
        (CopiesPass, "copies", "handled twice"),
        (KeysPass, "a key", "out of order"),
        (ReadIsReached, "copies", "handled twice"),
        (SuspectsWait, "others pass", "never handled"),
    ],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(kind: type[DeliverySchedule], start: str, fault: str) -> None:
    found = search(world(start, kind))
    assert found.fault is not None
    assert fault in found.fault
    assert found.path
