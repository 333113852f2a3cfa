"""A model of reads of one object at a place, while it is changed, checkpointed, trimmed, deleted, forgotten and created again.

A reader takes a place, reads the newest checkpoint at or below it, and folds the records between, from `covers` + 1 or from 1. It may keep
the state, and read only newer records later. In every execution it gets the state at its place, or an error if that is trimmed. If a rule
is turned off, the search finds a state that never existed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    names_its_start: bool = True
    floor: bool = True
    waits_for_its_place: bool = True
    keeps_one_checkpoint_more: bool = True
    asks_behind_what_it_has_seen: bool = True
    folds_what_has_nothing: bool = True


@dataclass(frozen=True)
class Left:
    """The steps that are left."""

    changes: int
    checkpoints: int
    deletions: int
    reads: int
    forgets: int


@dataclass(frozen=True)
class Reader:
    """A read: its place; then the checkpoint it found (value, covers), and whether it found one."""

    place: int
    base: tuple[int, int] | None = None


Record = tuple[str, tuple[int, int] | str]
"""("o", "+" or "D") or ("k", (value, covers)); value -1: there is none."""


@dataclass(frozen=True)
class Object:
    """The object, its streams, a checkpointer, and a reader."""

    rules: Rules
    left: Left
    log: tuple[Record, ...] = ()
    marks: tuple[int, int] = (0, 0)
    gone: tuple[int, int] = (0, 0)
    floor: int = 0
    composing: tuple[int, int, int] | None = None
    made: tuple[tuple[int, int], ...] = ()
    reader: Reader | None = None
    kept: tuple[int, int] | None = None
    """The reader's knowledge: (value, seen)."""
    wrong: str | None = None

    def fault(self) -> str | None:
        return self.wrong

    # -- the log

    def rows(self, stream: str) -> list[tuple[int, Record]]:
        at = "ok".index(stream)
        least = max(self.marks[at], self.gone[at] + 1)
        return [(seqnum, one) for seqnum, one in enumerate(self.log, 1) if one[0] == stream and seqnum >= least]

    def newest(self, stream: str) -> int:
        at = "ok".index(stream)
        return max((n for n, one in enumerate(self.log, 1) if one[0] == stream and n > self.gone[at]), default=0)

    def truth(self, place: int) -> int:
        return _folded(-1, [one for one in self.log[:place] if one[0] == "o"])

    def trimmed(self, stream: str, before: int) -> Object:
        at = "ok".index(stream)
        mark = min(before, self.newest(stream) + 1)
        marks = list(self.marks)
        if mark > max(marks[at], 1) and any(seqnum < mark for seqnum, _ in self.rows(stream)):
            marks[at] = mark
        return replace(self, marks=(marks[0], marks[1]))

    # -- what happens

    def moves(self) -> Iterator[tuple[str, Object]]:
        left, now = self.left, len(self.log)
        there = self.truth(now) >= 0
        if left.changes:
            yield "changed", replace(self, left=replace(left, changes=left.changes - 1), log=(*self.log, ("o", "+")))
        if left.deletions and there:
            yield (
                "deleted",
                replace(self, left=replace(left, deletions=left.deletions - 1), log=(*self.log, ("o", "D"))),
            )
        if left.checkpoints and self.composing is None and there:
            composing = self.truth(now), now, self.newest("k")
            yield "composes", replace(self, left=replace(left, checkpoints=left.checkpoints - 1), composing=composing)
        if self.composing is not None:
            yield "a checkpoint lands", self._landed(*self.composing)
        if left.forgets and now and not there and self.newest("o") and self.composing is None:
            yield "forgotten", self._forgotten()
        if self.reader is None:
            if left.reads and now:
                reads = replace(left, reads=left.reads - 1)
                yield "takes a place", replace(self, left=reads, reader=Reader(now))
                if self.kept is not None:
                    yield "asks what is new", replace(self, left=reads)._asked(*self.kept)
        elif self.reader.base is None:
            yield "reads the checkpoint", self._based(self.reader.place)
        else:
            yield "folds", self._read(self.reader.place, *self.reader.base, behind=0)
            if not self.rules.waits_for_its_place:
                yield "folds at an engine that is behind", self._read(self.reader.place, *self.reader.base, behind=1)

    def _landed(self, value: int, covers: int, previous: int) -> Object:
        after = replace(self, composing=None)
        if self.newest("k") > previous:
            return after
        made = (*self.made, (len(self.log) + 1, covers))
        after = replace(after, log=(*self.log, ("k", (value, covers))), made=made)
        keeps = 2 if self.rules.keeps_one_checkpoint_more else 1
        if len(made) >= keeps:
            seqnum, covered = made[-keeps]
            after = after.trimmed("o", covered + 1).trimmed("k", seqnum)
        return after

    def _forgotten(self) -> Object:
        after = replace(self, left=replace(self.left, forgets=self.left.forgets - 1), made=())
        gone, marks = list(self.gone), list(self.marks)
        floor = self.floor
        for at, stream in enumerate("ok"):
            newest = after.newest(stream)
            if newest:
                gone[at], marks[at], floor = newest, 0, max(floor, newest)
        return replace(after, gone=(gone[0], gone[1]), marks=(marks[0], marks[1]), floor=floor)

    # -- reading

    def _based(self, place: int) -> Object:
        if place < self.marks[1]:
            return replace(self, reader=None)
        found = [one[1] for seqnum, one in self.rows("k") if seqnum <= place]
        if not found and self.rules.floor and place < self.floor:
            return replace(self, reader=None)
        base = found[-1] if found else (-1, 0)
        assert isinstance(base, tuple)
        nothing = not found and not any(seqnum <= place for seqnum, _ in self.rows("o"))
        if nothing and not self.rules.folds_what_has_nothing:
            value = self.truth(place)
            wrong = None if value < 0 else f"found nothing, at {place} it was {value}"
            return replace(self, reader=None, wrong=wrong)
        return replace(self, reader=Reader(place, base))

    def _read(self, place: int, value: int, covers: int, *, behind: int) -> Object:
        after = replace(self, reader=None)
        start = covers + 1 if covers or self.rules.names_its_start else 0
        if self._is_gap(start, place) or (self.rules.floor and place < self.floor and start <= 1):
            return after
        found = _folded(value, [one for n, one in self.rows("o") if start <= n <= place - behind])
        if found != self.truth(place):
            return replace(after, wrong=f"read {found}, at {place} it was {self.truth(place)}")
        return replace(after, kept=(found, place))

    def _asked(self, value: int, seen: int) -> Object:
        """Bring the reader's knowledge up to now."""
        now = len(self.log)
        start = seen + 1
        if self.rules.asks_behind_what_it_has_seen and self._is_gap(start, now):
            return replace(self, kept=None)
        found = _folded(value, [one for n, one in self.rows("o") if start <= n <= now])
        if found != self.truth(now):
            return replace(self, wrong=f"what was known became {found}, and it is {self.truth(now)}")
        return replace(self, kept=(found, now))

    def _is_gap(self, start: int, last: int) -> bool:
        """Return the log's answer to a range that names its start."""
        if not start or start > last:
            return False
        if start < self.marks[0]:
            return True
        before = [n for n, _ in self.rows("o") if n < start]
        return self.rules.floor and 1 < start <= self.floor and not self.marks[0] and not before


def _folded(value: int, records: list[Record]) -> int:
    for _, what in records:
        value = -1 if what == "D" else max(value, 0) + 1
    return value


ALL = Left(changes=3, checkpoints=3, deletions=1, reads=2, forgets=1)


def test_with_all_rules_a_reader_gets_the_state_or_that_it_is_trimmed() -> None:
    found = search(Object(Rules(), ALL))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 10_000


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("names_its_start", Left(changes=2, checkpoints=2, deletions=0, reads=1, forgets=0)),
        ("floor", Left(changes=2, checkpoints=2, deletions=1, reads=1, forgets=1)),
        ("waits_for_its_place", Left(changes=1, checkpoints=0, deletions=0, reads=1, forgets=0)),
        ("asks_behind_what_it_has_seen", Left(changes=4, checkpoints=2, deletions=0, reads=2, forgets=0)),
        ("folds_what_has_nothing", Left(changes=2, checkpoints=2, deletions=0, reads=1, forgets=0)),
    ],
)
def test_without_a_rule_a_state_is_read_that_never_was(rule: str, left: Left) -> None:
    found = search(Object(replace(Rules(), **{rule: False}), left))
    assert found.fault is not None and found.path, found


def test_with_one_checkpoint_a_snapshot_is_trimmed_and_never_wrong() -> None:
    """The one more is for those who hold a snapshot: without it they get an error, and no wrong state."""
    found = search(Object(replace(Rules(), keeps_one_checkpoint_more=False), replace(ALL, changes=2)))
    assert found.fault is None
