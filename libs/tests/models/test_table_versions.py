"""Looking at a versioned row without a record, as a model: a workflow that dies and is replayed, writers, a table that follows late, a
log that is trimmed, and a process that deletes versions. Each look has the same answer in every replay, and a state that was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        cursor: it looks as of its last delivery. first: what it looks at is delivered before anything else.
        settled: the log is trimmed up to what is stored only.
        watermark: versions are deleted below where each workflow looks. recorded: the log has the floor before. asks: a look in the
            table is followed by a query to the log.
    """

    cursor: bool = True
    first: bool = True
    settled: bool = True
    watermark: bool = True
    recorded: bool = True
    asks: bool = True


@dataclass(frozen=True)
class Life:
    """The workflow as it runs. `delivered`: how much of its history. `looks`: answers so far. `reading`: where it is with the next one."""

    delivered: int = 0
    looks: int = 0
    reading: str = ""
    found: int = 0
    place: int = 0


@dataclass(frozen=True)
class World:
    """A row and a workflow, which begins, looks, gets an event, looks, and ends. Versions and events are numbered by the log's places.

    Attributes:
        events: places in the log of the events delivered to the workflow, its beginning first. answers: the first answer to each look.
    """

    rules: Rules
    writes: int
    deaths: int
    length: int = 1
    versions: tuple[int, ...] = ()
    stored: frozenset[int] = frozenset()
    trimmed: int = 0
    floor: int = 0
    deleting: int = 0
    events: tuple[int, ...] = (1,)
    answers: tuple[int, ...] = ()
    life: Life | None = Life()
    wrong: str = ""

    def fault(self) -> str | None:
        return self.wrong or None

    def moves(self) -> Iterator[tuple[str, World]]:
        if self.writes:
            place = self.length + 1
            yield "a version", replace(self, length=place, versions=(*self.versions, place), writes=self.writes - 1)
        missing = [one for one in self.versions if one not in self.stored]
        if missing:
            yield "the table follows", replace(self, stored=self.stored | {missing[0]})
        stored = [one for one in self.versions if one in self.stored or not self.rules.settled]
        if stored and stored[-1] > self.trimmed and (not missing or stored[-1] < missing[0] or not self.rules.settled):
            yield "the log is trimmed", replace(self, trimmed=stored[-1])
        yield from self._collects()
        if self.life is None:
            yield "it is taken over", replace(self, life=Life())
            return
        if self.deaths:
            yield "it dies", replace(self, life=None, deaths=self.deaths - 1)
        yield from self._lives(self.life)

    def _collects(self) -> Iterator[tuple[str, World]]:
        place = self.events[0] if self.rules.watermark else self.length
        if self.deleting < 0:
            yield "the floor is recorded", replace(self, deleting=0, floor=max(self.floor, -self.deleting))
        elif self.deleting:
            kept = max((one for one in self.stored if one <= self.deleting), default=0)
            left = frozenset(one for one in self.stored if one >= kept)
            yield (
                "versions are deleted",
                replace(self, stored=left, deleting=0 if self.rules.recorded else -self.deleting),
            )
        elif place > self.floor and self.deaths:  # a few times are enough
            yield (
                "versions may be deleted",
                replace(self, deleting=place, floor=place if self.rules.recorded else self.floor),
            )

    def _lives(self, life: Life) -> Iterator[tuple[str, World]]:
        due = life.looks <= life.delivered and life.looks < 2
        if due and not life.reading:
            place = self.events[min(life.delivered, len(self.events) - 1)] if self.rules.cursor else self.length
            yield "it looks in the log", self._in_log(replace(life, place=place))
        if life.reading == "table":
            found = max((one for one in self.stored if one <= life.place), default=0)
            yield "it looks in the table", replace(self, life=replace(life, reading="ask", found=found))
        if life.reading == "ask":
            if self.rules.asks and life.place < self.floor:
                yield (
                    "it cannot be answered",
                    replace(self, life=replace(life, reading="blocked"), wrong=self._blocked()),
                )
            else:
                yield "it is answered", self._answered(life, life.found)
        waits = due and self.rules.first
        if life.delivered == 0 and not waits and not (due and life.reading):
            if len(self.events) > 1:
                yield "what the log has is delivered", replace(self, life=replace(life, delivered=1))
            else:
                place = self.length + 1
                yield (
                    "something is delivered",
                    replace(self, length=place, events=(*self.events, place), life=replace(life, delivered=1)),
                )

    def _blocked(self) -> str:
        return "what it looks at cannot be read" if self.rules.watermark else ""

    def _in_log(self, life: Life) -> World:
        found = max((one for one in self.versions if one <= life.place), default=0)
        if found > self.trimmed:
            return self._answered(life, found)
        return replace(self, life=replace(life, reading="table"))

    def _answered(self, life: Life, found: int) -> World:
        after = replace(life, looks=life.looks + 1, reading="", found=0, place=0)
        truth = max((one for one in self.versions if one <= life.place), default=0)
        if found != truth:
            return replace(self, life=after, wrong=f"got {found} as of {life.place}, which was {truth}")
        if life.looks < len(self.answers):
            if self.answers[life.looks] != found:
                return replace(
                    self, life=after, wrong=f"got {self.answers[life.looks]} in one life and {found} in another"
                )
            return replace(self, life=after)
        return replace(self, life=after, answers=(*self.answers, found))


START = World(Rules(), writes=3, deaths=2)


def test_it_reads_the_same_in_each_life() -> None:
    found = search(START)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 2_000


def test_who_is_not_counted_is_blocked_and_nothing_is_invented() -> None:
    found = search(replace(START, rules=Rules(watermark=False)))
    assert (found.fault, found.path) == (None, [])


@pytest.mark.parametrize("broken", ["cursor", "first", "settled"])
def test_each_rule_is_needed(broken: str) -> None:
    found = search(replace(START, rules=Rules(**{broken: False})))
    assert found.fault is not None, f"nothing was found without {broken}"


@pytest.mark.parametrize("broken", ["recorded", "asks"])
def test_each_rule_about_deletions_is_needed_where_somebody_is_not_counted(broken: str) -> None:
    found = search(replace(START, rules=Rules(**{"watermark": False, broken: False})))
    assert found.fault is not None, f"nothing was found without {broken}"
