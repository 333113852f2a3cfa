"""A model of rewriting a shard's old messages, over the queue's own rules (`old_rules`, `shard_state`): two carriers that may die
between any two steps, beside owners of one or two groups that read, ack, make checkpoints and are replaced. In every schedule each message
is acked once per group, and one of several copies. If a rule is turned off, the search finds an execution that breaks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bokilib.records.dedup import DedupWindow
from bokiqueue.model.events import Acked, Checkpoint, Id
from bokiqueue.model.old_rules import is_finished
from bokiqueue.model.shard_state import Progress, StreamRecord, fold
from libs.tests.models.search import search

FOR_EVER = 1 << 40
NOBODY = -1


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    keeps_what_nobody_came_to: bool = True
    asks_all_groups: bool = True
    expects_the_one_before: bool = True
    trims_what_is_readable: bool = True
    looks_again_at_a_gap: bool = True
    wholes_only: bool = True


@dataclass(frozen=True)
class SetRecord:
    """A record of the set's stream. `first`: place of its first part, 0: this one."""

    covers: int
    first: int
    last: bool
    messages: tuple[int, ...]


@dataclass(frozen=True)
class Owner:
    """An owner of a group: the messages in its memory. `covers`: of the last set that it read to the end."""

    group: str
    claim: int
    read: int
    over: frozenset[int]
    window: tuple[str, ...]
    reached: int = 0
    have: tuple[int, ...] = ()


@dataclass(frozen=True)
class Carrier:
    """A carrier: the messages that it found, and its progress. `covers`: 0 before it looked."""

    covers: int = 0
    keep: tuple[int, ...] = ()
    newest: int = 0
    first: int = 0
    before: int = 0
    trimmed: bool = False


@dataclass(frozen=True)
class Shard:
    """The log, by places from 1: (kind, group, value). `budget`: pushes (of which dedup id), checkpoints, takeovers, deaths."""

    rules: Rules
    groups: tuple[str, ...]
    pushes: tuple[str | None, ...]
    checkpoints: int = 0
    takeovers: int = 0
    deaths: int = 0
    carriers: tuple[Carrier, ...] = (Carrier(),)
    log: tuple[tuple[str, str, Any], ...] = ()
    mark: int = 1
    """Messages below are trimmed."""
    old_mark: int = 1
    owners: tuple[Owner, ...] = ()

    # -- the log

    def rows(self, kind: str, group: str = "") -> list[tuple[int, Any]]:
        return [
            (place, row[2])
            for place, row in enumerate(self.log, 1)
            if row[0] == kind and group in ("", row[1]) and (kind != "old" or place >= self.old_mark)
        ]

    def put(self, kind: str, group: str = "", value: Any = None) -> Shard:
        return replace(self, log=(*self.log, (kind, group, value)))

    def newest_set(self) -> tuple[int, int, tuple[int, ...]]:
        """Return the newest complete set: its `covers`, the place of its last part, its messages."""
        rows = self.rows("old")
        for place, part in reversed(rows):
            if part.last or not self.rules.wholes_only:
                first = part.first or place
                mine = [one for at, one in rows if first <= at <= place]
                return part.covers, place, tuple(message for one in mine for message in one.messages)
        return 0, 0, ()

    def progress(self, group: str) -> Progress:
        found = [
            StreamRecord(
                place,
                0,
                "",
                [Acked("s", (Id(value, 0),)) if row[0] == "ack" else Checkpoint("s", value[1], 0, 1, value[0])],
            )
            for place, (row, value) in enumerate(((row, row[2]) for row in self.log), 1)
            if row[0] in ("ack", "checkpoint") and row[1] == group
        ]
        return fold(found, 1, FOR_EVER).progress

    def dedup(self, message: int) -> str | None:
        dedup: str | None = self.log[message - 1][2]
        return dedup

    def fault(self) -> str | None:
        for group in self.groups:
            acked = [value for _, value in self.rows("ack", group)]
            effects = [self.dedup(message) or message for message in acked]
            if len(effects) != len(set(effects)):
                return f"{group} acked twice: {acked}"
        if next(self.moves(), None) is None:
            wanted = {self.dedup(place) or place for place, _ in self.rows("push")}
            for group in self.groups:
                missing = wanted - {self.dedup(value) or value for _, value in self.rows("ack", group)}
                if missing:
                    return f"{group} never acked {sorted(map(str, missing))}"
        return None

    def moves(self) -> Iterator[tuple[str, Shard]]:
        if self.pushes:
            dedup, *rest = self.pushes
            yield "a push", replace(self.put("push", "", dedup), pushes=tuple(rest))
        for group in self.groups:
            had = any(owner.group == group for owner in self.owners)
            if not had or self.takeovers:
                after = replace(self, takeovers=self.takeovers - had)
                yield f"somebody has {group}", after._taken(group)
        for number, owner in enumerate(self.owners):
            yield from self._owner_moves(number, owner)
        for number, carrier in enumerate(self.carriers):
            yield from self._carrier_moves(number, carrier)
            if self.deaths:
                others = (*self.carriers[:number], *self.carriers[number + 1 :])
                yield f"carrier {number} dies", replace(self, deaths=self.deaths - 1, carriers=others)

    # -- owners

    def _taken(self, group: str) -> Shard:
        come = self.progress(group)
        window = tuple(dedup for dedup, _ in come.window.items())
        owner = Owner(group, len(self.log) + 1, come.read, frozenset(id.seqnum for id in come.over), window)
        others = tuple(one for one in self.owners if one.group != group)
        return replace(self.put("own", group), owners=(*others, owner))

    def _with(self, number: int, owner: Owner) -> Shard:
        return replace(self, owners=(*self.owners[:number], owner, *self.owners[number + 1 :]))

    def _owner_moves(self, number: int, owner: Owner) -> Iterator[tuple[str, Shard]]:
        who = f"the owner of {owner.group}"
        read = self._read(owner)
        if read is not None:
            yield f"{who} reads on", self._with(number, read)
        for message in owner.have:
            rest = tuple(one for one in owner.have if one != message)
            done = replace(owner, have=rest, over=owner.over | {message})
            yield f"{who} acks {message}", self._with(number, done).put("ack", owner.group, message)
        if self.checkpoints:
            state = Progress(1, DedupWindow(FOR_EVER, [(dedup, 0) for dedup in owner.window]))
            state.read, state.over = max(owner.read, owner.reached), {Id(message, 0) for message in owner.over}
            after = self.put("checkpoint", owner.group, (state.encode(), len(self.log)))
            yield f"{who} makes a checkpoint", replace(after, checkpoints=self.checkpoints - 1)

    def _read(self, owner: Owner) -> Owner | None:
        """Read one more message; None if there is none."""
        covers, _, messages = self.newest_set()
        began = owner.reached > 0 and not self.rules.looks_again_at_a_gap
        if covers > owner.reached and not began:
            later = [message for message in messages if message > owner.reached]
            return self._offered(owner, later[0]) if later else replace(owner, reached=covers)
        pushed = [place for place, _ in self.rows("push") if place > owner.reached and place >= self.mark]
        return self._offered(owner, pushed[0]) if pushed else None

    def _offered(self, owner: Owner, message: int) -> Owner:
        dedup, over, window = self.dedup(message), owner.over, owner.window
        if message > owner.read and dedup is not None:
            if dedup in window:
                over = over | {message}
            else:
                window = (*window, dedup)
        have = owner.have if message in over else (*owner.have, message)
        return replace(owner, over=over, window=window, have=have, reached=message)

    # -- who carries

    def _carrier_moves(self, number: int, carrier: Carrier) -> Iterator[tuple[str, Shard]]:
        who = f"carrier {number}"

        def become(after: Shard, one: Carrier | None) -> Shard:
            rest = () if one is None else (one,)
            return replace(after, carriers=(*after.carriers[:number], *rest, *after.carriers[number + 1 :]))

        if not carrier.covers:
            looked = self._looked()
            if looked is not None:
                yield f"{who} looks", become(self, looked)
            return
        if carrier.keep and (carrier.trimmed or self.rules.trims_what_is_readable):
            newest = max((place for place, _ in self.rows("old")), default=0)
            if self.rules.expects_the_one_before and newest > carrier.newest:
                yield f"{who} comes too late", become(self, None)
                return
            message, *rest = carrier.keep
            place = len(self.log) + 1
            after = self.put("old", "", SetRecord(carrier.covers, carrier.first, not rest, (message,)))
            first = carrier.first or place
            yield f"{who} appends a part", become(after, replace(carrier, keep=tuple(rest), newest=place, first=first))
            return
        if not carrier.trimmed:
            old_mark = carrier.first or carrier.before + 1
            after = replace(self, mark=max(self.mark, carrier.covers + 1), old_mark=max(self.old_mark, old_mark))
            left = replace(carrier, trimmed=True) if carrier.keep else None
            yield f"{who} trims", become(after, left)

    def _looked(self) -> Carrier | None:
        covers, last, messages = self.newest_set()
        above = [place for place, _ in self.rows("push") if place > covers and place >= self.mark]
        if not above:
            return None
        come = [self.progress(group) for group in self.groups]
        how = all if self.rules.asks_all_groups else any
        keep = tuple(message for message in (*messages, *above) if not how(self._is_over(message, one) for one in come))
        newest = max((place for place, _ in self.rows("old")), default=0)
        return Carrier(above[-1], keep, newest, 0, last)

    def _is_over(self, message: int, come: Progress) -> bool:
        if not self.rules.keeps_what_nobody_came_to:
            return come.is_finished(Id(message, 0))
        return is_finished(Id(message, 0), come)


TWO = ("a", "b")
STARTS = {
    "copies": Shard(Rules(), ("a",), ("x", "x"), checkpoints=1, takeovers=1),
    "two groups": Shard(Rules(), TWO, (None,), checkpoints=1),
    "two who carry, one dies": Shard(Rules(), ("a",), (None, None), deaths=1, carriers=(Carrier(), Carrier())),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_each_message_is_acked_once_for_each_group(start: Shard) -> None:
    found = search(start)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 100


@pytest.mark.nightly
@pytest.mark.parametrize(
    "start",
    [
        Shard(Rules(), ("a",), ("x", "x"), checkpoints=1, takeovers=1, deaths=1, carriers=(Carrier(), Carrier())),
        Shard(Rules(), TWO, ("x", "x"), checkpoints=1),
    ],
    ids=["all of it", "copies of two groups"],
)
def test_each_message_is_acked_once_with_larger_bounds(start: Shard) -> None:
    found = search(start)
    assert (found.fault, found.path) == (None, [])


@pytest.mark.parametrize(
    ("rule", "start", "fault"),
    [
        ("keeps_what_nobody_came_to", "copies", "a acked twice"),
        ("asks_all_groups", "two groups", "never acked"),
        ("expects_the_one_before", "two who carry, one dies", "never acked"),
        ("trims_what_is_readable", "two who carry, one dies", "never acked"),
        ("looks_again_at_a_gap", "two who carry, one dies", "never acked"),
        ("wholes_only", "two who carry, one dies", "never acked"),
    ],
)
def test_without_a_rule_the_search_finds_what_goes_wrong(rule: str, start: str, fault: str) -> None:
    found = search(replace(STARTS[start], rules=replace(Rules(), **{rule: False})))
    assert found.fault is not None
    assert fault in found.fault
    assert found.path
