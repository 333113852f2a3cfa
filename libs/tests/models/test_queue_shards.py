"""A model of one shard of a queue, over the queue's own rules (`shard_state`): an owner and a second one that takes over at any time, ACKs
in flight beside checkpoints, trims, a group that registers meanwhile. Each message is acked once. If a rule is turned off, the search
finds an effect that happens twice, a message that no owner can ack any more, or one that was trimmed too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokilib.records.dedup import DedupWindow
from bokiqueue.model.events import Acked, Checkpoint, Id
from bokiqueue.model.shard_state import Progress, StreamRecord, consumer_from, fold, messages_from
from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    covers_what_is_known: bool = True
    expects_settings: bool = True
    checks_receipts: bool = True


@dataclass(frozen=True)
class Composed:
    """A checkpoint that is on its way."""

    data: bytes
    covers: int
    floor: Id
    settings: int


@dataclass(frozen=True)
class Owner:
    """A process that has, or had, the shard."""

    claim: int
    settings: int
    read: int = 0
    over: frozenset[int] = frozenset()
    running: tuple[int, ...] = ()
    flying: tuple[int, ...] = ()
    composed: Composed | None = None
    parked: bool = False


@dataclass(frozen=True)
class Shard:
    """The log, by places from 1: what a record is, and of which message."""

    rules: Rules
    pushes: int
    checkpoints: int
    takeovers: int
    groups: int = 0
    leases: int = 0
    log: tuple[tuple[str, int | bytes, int], ...] = (("settings", 0, 0), ("own", 0, 0))
    messages_mark: int = 1
    consumer_mark: int = 1
    owners: tuple[Owner, ...] = (Owner(2, 1),)

    def newest(self, kind: str) -> int:
        return max((place for place, row in enumerate(self.log, 1) if row[0] == kind), default=0)

    def places(self, kind: str) -> list[int]:
        return [place for place, row in enumerate(self.log, 1) if row[0] == kind]

    def acked(self) -> list[int | bytes]:
        return [row[1] for row in self.log if row[0] == "ack"]

    def group(self) -> int:
        """Return the place at which another group begins, 0 if there is none."""
        found = self.places("settings")
        return found[1] if len(found) > 1 else 0

    def fault(self) -> str | None:
        done = self.acked()
        if len(done) != len(set(done)):
            return f"acked twice: {done}"
        group = self.group()
        if group and any(group < place < self.messages_mark for place in self.places("push")):
            return "trimmed what another group has to read"
        if next(self.moves(), None) is None:
            missing = set(self.places("push")) - set(done)
            if missing:
                return f"never acked: {sorted(missing)}"
        return None

    def put(self, number: int, owner: Owner, *records: tuple[str, int | bytes, int]) -> Shard:
        owners = (*self.owners[:number], owner, *self.owners[number + 1 :])
        return replace(self, owners=owners, log=(*self.log, *records))

    def moves(self) -> Iterator[tuple[str, Shard]]:
        if self.pushes:
            yield "a push", replace(self, pushes=self.pushes - 1, log=(*self.log, ("push", 0, 0)))
        if self.groups:
            yield "a group registers", replace(self, groups=0, log=(*self.log, ("settings", 0, 0)))
        if self.takeovers:
            yield "another takes over", self._taken_over()
        for number, owner in enumerate(self.owners):
            if not owner.parked:
                yield from self._owner_moves(number, owner)

    def _taken_over(self) -> Shard:
        rows = [
            StreamRecord(place, 0, "", [Acked("s", (Id(int(row[1]), 0),))])
            if row[0] == "ack"
            else StreamRecord(place, 0, "", [Checkpoint("s", row[2], 0, 1, bytes(row[1]))])
            for place, row in enumerate(self.log, 1)
            if row[0] in ("ack", "checkpoint") and place >= self.consumer_mark
        ]
        progress = fold(rows, 1, 0).progress
        over = frozenset(id.seqnum for id in progress.over)
        claim = len(self.log) + 1
        owner = Owner(claim, self.newest("settings"), progress.floor.seqnum - 1, over)
        after = replace(self, takeovers=self.takeovers - 1, owners=(*self.owners, owner))
        return replace(after, log=(*self.log, ("own", 0, 0)))

    def _owner_moves(self, number: int, owner: Owner) -> Iterator[tuple[str, Shard]]:
        who = f"owner {number}"
        unread = [place for place in self.places("push") if place > owner.read and place >= self.messages_mark]
        if unread:
            run = () if unread[0] in owner.over else (unread[0],)
            yield (
                f"{who} hands out {unread[0]}",
                self.put(number, replace(owner, read=unread[0], running=owner.running + run)),
            )
        for message in dict.fromkeys(owner.running):
            again = owner.running.count(message) > 1
            rest = tuple(one for one in owner.running if one != message) + ((message,) if again else ())
            if not self.rules.checks_receipts or (message not in owner.flying and message not in owner.over):
                yield (
                    f"{who} acks {message}",
                    self.put(number, replace(owner, running=rest, flying=(*owner.flying, message))),
                )
            else:
                yield f"{who} refuses to ack {message}", self.put(number, replace(owner, running=rest))
            if self.leases:
                after = self.put(number, replace(owner, running=(*owner.running, message)))
                yield f"the lease of {message} runs out", replace(after, leases=self.leases - 1)
        mine = self.newest("own") == owner.claim
        if owner.flying:
            message, *rest_flying = owner.flying
            if mine:
                landed = replace(owner, flying=tuple(rest_flying), over=owner.over | {message})
                yield f"the ack of {message} lands", self.put(number, landed, ("ack", message, 0))
            else:
                yield f"{who} parks", self.put(number, replace(owner, parked=True))
        if self.checkpoints and owner.composed is None:
            composed = replace(owner, composed=self._compose(owner))
            yield f"{who} composes a checkpoint", replace(self.put(number, composed), checkpoints=self.checkpoints - 1)
        if owner.composed is not None:
            yield f"the checkpoint of {who} lands", self._checkpointed(number, owner, owner.composed, mine=mine)

    def _compose(self, owner: Owner) -> Composed:
        progress = Progress(1, DedupWindow(0))
        progress.read, progress.over = owner.read, {Id(message, 0) for message in owner.over}
        waiting = [p for p in self.places("push") if p <= owner.read and p not in owner.over]
        progress.raise_floor(Id(waiting[0] if waiting else owner.read + 1, 0))
        known = [place for place in self.places("ack") if self.log[place - 1][1] in owner.over]
        return Composed(progress.encode(), max([owner.claim, *known]), progress.floor, owner.settings)

    def _checkpointed(self, number: int, owner: Owner, composed: Composed, *, mine: bool) -> Shard:
        if not mine:
            return self.put(number, replace(owner, composed=None, parked=True))
        newest = self.newest("settings")
        if self.rules.expects_settings and newest > composed.settings:
            return replace(
                self.put(number, replace(owner, composed=None, settings=newest)), checkpoints=self.checkpoints + 1
            )
        place = len(self.log) + 1
        covers = composed.covers if self.rules.covers_what_is_known else place
        known = self.group() if composed.settings > 1 else 0
        starts = {"mine": 1} | ({"other": known + 1} if known else {})
        floor = messages_from(composed.floor, {"other": None} if known else {}, starts)
        after = self.put(number, replace(owner, composed=None), ("checkpoint", composed.data, covers))
        return replace(
            after,
            messages_mark=max(self.messages_mark, floor),
            consumer_mark=max(self.consumer_mark, min(consumer_from(covers), place)),
        )


@pytest.mark.parametrize(
    "start",
    [
        Shard(Rules(), pushes=2, checkpoints=1, takeovers=1),
        Shard(Rules(), pushes=1, checkpoints=2, takeovers=1, leases=1),
        Shard(Rules(), pushes=2, checkpoints=1, takeovers=0, groups=1),
    ],
    ids=["takeover", "leases", "group"],
)
def test_each_message_is_acked_once_by_somebody(start: Shard) -> None:
    found = search(start)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 100


@pytest.mark.nightly
def test_each_message_is_acked_once_with_larger_bounds() -> None:
    found = search(Shard(Rules(), pushes=2, checkpoints=2, takeovers=1, groups=1, leases=1), limit=20_000_000)
    assert (found.fault, found.path) == (None, [])


@pytest.mark.parametrize(
    ("rule", "start", "fault"),
    [
        ("covers_what_is_known", Shard(Rules(), 1, 1, 1), "acked twice"),
        ("expects_settings", Shard(Rules(), 2, 1, 0, 1), "another group"),
        ("checks_receipts", Shard(Rules(), 1, 0, 0, 0, 1), "acked twice"),
    ],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(rule: str, start: Shard, fault: str) -> None:
    found = search(replace(start, rules=replace(Rules(), **{rule: False})))
    assert found.fault is not None
    assert fault in found.fault
    assert found.path
