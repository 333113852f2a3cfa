"""Transactions whose snapshot is open, as a model over the store's own rules (`open_snapshot`, `view_cache`): one process with views that
it keeps, a transaction that reads x and then y, foreign writers, and the log's rule about what is expected.

In every execution a body sees one state that was, at or above what counts for its isolation, and what is read holds.
Without a rule the search finds a body that saw what never was, or a result from a past that the session had left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import pytest

from bokilib.records.isolation import Isolation, expectations, holds
from bokistore.commit.open_snapshot import OpenSnapshot
from bokistore.model.fold import View
from bokistore.read.view_cache import KnownView
from libs.tests.models.search import search

Name: TypeAlias = str
NAMES: tuple[Name, Name] = ("x", "y")


def view_of(name: Name, seen: int) -> View:
    """An object that is there: each write changes it, so its newest record tells one state from another."""
    return View(name, seen, exists=True, value={"n": seen})


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    one_place: bool = True
    unchanged: bool = True
    proven: bool = True
    least: bool = True
    upto_is_what_was_found: bool = True


@dataclass(frozen=True)
class World:
    """A process whose transaction writes `writes` (or nothing), and others that write x and y.

    Attributes:
        log: which object each record is of. kept: (name, seen, upto) of views. session: what the session has seen.
        begun: session when the transaction began; 0: it did not. open: (place, fixed, stale); bases: what it read.
    """

    isolation: Isolation
    writes: str
    rules: Rules
    foreign: int
    own: int
    log: tuple[Name, ...] = ("x", "y")
    kept: tuple[tuple[Name, int, int], ...] = (("x", 1, 2), ("y", 2, 2))
    session: int = 2
    begun: int = 0
    open: tuple[int, bool, bool] = (0, False, False)
    bases: tuple[tuple[Name, int], ...] = ()
    wrong: str | None = None

    def fault(self) -> str | None:
        return self.wrong

    def newest(self, name: Name, place: int) -> int:
        return max((at for at, one in enumerate(self.log, 1) if one == name and at <= place), default=0)

    def known(self) -> dict[str, KnownView]:
        return {name: KnownView(view_of(name, seen), upto) for name, seen, upto in self.kept}

    def moves(self) -> Iterator[tuple[str, World]]:
        if self.foreign:
            for name in NAMES:
                yield f"others write {name}", replace(self, foreign=self.foreign - 1, log=(*self.log, name))
        if self.own:
            for name in NAMES:  # a plain operation of this process, whose result is folded: its view is known
                yield f"we write {name}", self._own_write(name)
            yield "we see what there is", replace(self, own=self.own - 1, session=len(self.log))
        if not self.begun:
            yield "begins", replace(self, begun=self.session)
        elif len(self.bases) < 2:
            yield from self._reads(NAMES[len(self.bases)])
        else:
            yield "ends", self._ended()

    def _own_write(self, name: Name) -> World:
        log = (*self.log, name)
        kept = tuple(row for row in self.kept if row[0] != name)
        if not self.rules.upto_is_what_was_found:  # but what the session has seen
            kept = tuple((other, seen, len(log)) for other, seen, _ in kept)
        return replace(self, own=self.own - 1, log=log, kept=(*kept, (name, len(log), len(log))), session=len(log))

    def snapshot(self) -> OpenSnapshot:
        isolation = self.isolation if self.rules.least else "serializable"
        where = OpenSnapshot(isolation, self.begun, trusting=True)
        where.place, where.fixed, where.stale = self.open
        where.bases.update({name: view_of(name, seen) for name, seen in self.bases})
        return where

    def _reads(self, name: Name) -> Iterator[tuple[str, World]]:
        known = self.known()
        where = self.snapshot()
        if not self.rules.one_place:
            view = known[name].view
            where.place = max(where.place, known[name].upto)
            where.bases[name] = view
            yield f"reads {name} as it is known", self._with(where)
            return
        if not where.fixed and where.take_known([name], known):
            yield f"reads {name} as it is known", self._with(where)
            return
        if where.fixed:
            where.bases[name] = view_of(name, self.newest(name, where.place))
            yield f"reads {name} at its place", self._with(where)
            return
        place = len(self.log)
        asked = [one for one in NAMES if one in where.bases or one == name]
        views = [view_of(one, self.newest(one, place)) for one in asked]
        if not self.rules.unchanged:
            where.fix(place)
            where.bases.setdefault(name, views[-1])
        elif not where.take_read(place, views):
            where.bases[name] = view_of(name, self.newest(name, where.place))
        after = replace(self, session=place, kept=tuple((one, self.newest(one, place), place) for one in NAMES))
        yield f"asks for {name}", after._with(where)

    def _with(self, where: OpenSnapshot) -> World:
        given = dict(self.bases)  # it stays, whatever is known since
        bases = tuple((name, given.get(name, where.bases[name].seen)) for name in NAMES if name in where.bases)
        after = replace(self, open=(where.place, where.fixed, where.stale), bases=bases)
        seen = [place for place in range(1, len(self.log) + 1) if all(self.newest(n, place) == s for n, s in bases)]
        return after if seen else replace(after, wrong=f"it saw {bases}, which never was")

    def _ended(self) -> World:
        where = self.snapshot()
        over = replace(self, begun=0, open=(0, False, False), bases=())
        if self.writes and not where.stale:
            read = [name for name, _ in self.bases]
            expect = expectations(self.isolation, where.place, read=read, written=[self.writes])
            if not holds(expect, {name: self.newest(name, len(self.log)) for name in NAMES}):
                return over
            base = next(seen for name, seen in self.bases if name == self.writes)
            if base != self.newest("x", len(self.log)):
                return replace(over, wrong="an update was lost")
            if self.isolation == "snapshot" and where.place < self.begun:
                return replace(over, wrong=f"its snapshot {where.place} is older than what the session had seen")
            return over
        if where.stale or (self.rules.proven and not where.proven()):
            return over  # it is run again, and asks
        if any(self.newest(name, self.begun) > seen for name, seen in self.bases):
            return replace(over, wrong=f"it read {self.bases}, and the session had seen {self.begun}")
        return over


@pytest.mark.parametrize("writes", ["x", ""])
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_body_sees_one_state_and_what_it_returns_holds(isolation: Isolation, writes: str) -> None:
    found = search(World(isolation, writes, Rules(), foreign=2, own=2))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 1_000


@pytest.mark.parametrize(
    ("rule", "isolation", "writes", "wrong"),
    [
        ("one_place", "serializable", "x", "never was"),
        ("unchanged", "serializable", "x", "never was"),
        ("proven", "serializable", "", "the session had seen"),
        ("least", "snapshot", "x", "older than"),
        ("upto_is_what_was_found", "serializable", "x", "never was"),
    ],
)
def test_without_a_rule_it_sees_what_never_was(rule: str, isolation: Isolation, writes: str, wrong: str) -> None:
    found = search(World(isolation, writes, replace(Rules(), **{rule: False}), foreign=2, own=2))
    assert found.fault is not None and wrong in found.fault, found
    assert found.path
