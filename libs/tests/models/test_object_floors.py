"""A model of two objects of one book, over the engine's own rule for missing records (`boki_logbook.read.tag_lookup`): they are written
apart and together, deleted, checkpointed, trimmed, and forgotten in two steps, so that the floor of the book rises past the other object.

In every state a process that has only the log reads both as of now, and gets their state, never Trimmed. As of every place it gets their
state there, or Trimmed. A process that knows both from some moment reads the newer records of both at once: it gets their state, or starts
again. If a rule is turned off, the search finds an object that is unreadable or reappears, or a past that never existed.

The store follows it line by line (`checkpoint_reads`, `snapshot_reads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest

from boki_logbook.read.tag_lookup import Streams, missing_until
from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    fold_ends_at_a_record: bool = True
    """At the newest one, and not below it."""
    end_is_read_from_1: bool = True
    """Above a checkpoint that says that there is nothing."""
    floor: bool = True
    absence_has_a_place: bool = True
    engine: Callable[..., int] = missing_until


@dataclass(frozen=True)
class Left:
    """The steps that are left."""

    writes: int
    deletions: int
    checkpoints: int = 0
    known: int = 0


@dataclass(frozen=True)
class Stream:
    """Rows (place, what), its own mark, and its newest record."""

    rows: tuple[tuple[int, str | tuple[int, int]], ...] = ()
    mark: int = 0
    newest: int = 0

    def joined(self, place: int, what: str | tuple[int, int]) -> Stream:
        return replace(self, rows=(*self.rows, (place, what)), newest=place)

    def trimmed(self, before: int) -> Stream:
        mark = min(before, self.newest + 1)
        if mark <= max(self.mark, 1):
            return self
        return replace(self, mark=mark, rows=tuple(row for row in self.rows if row[0] >= mark))

    def last(self, place: int) -> tuple[int, str | tuple[int, int]] | None:
        return next((row for row in reversed(self.rows) if row[0] <= place), None)


class One(Streams):
    """A stream, as the engine's index has it."""

    def ascending(self, book: int, tag: int, start: int, stop: int, limit: int) -> list[int]:
        raise NotImplementedError

    def newest_of(self, book: int, tags: Sequence[int]) -> list[int]:
        raise NotImplementedError

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._places = [place for place, _ in stream.rows]

    def next(self, book: int, tag: int, at_least: int) -> int:
        return next((place for place in self._places if place >= at_least), 0)

    def prev(self, book: int, tag: int, at_most: int) -> int:
        return next((place for place in reversed(self._places) if place <= at_most), 0)

    def newest(self, book: int, tag: int) -> int:
        return self._stream.newest

    def mark(self, book: int, tag: int) -> int:
        return self._stream.mark

    def own_mark(self, book: int, tag: int) -> int:
        return self._stream.mark


@dataclass(frozen=True)
class Object:
    """An object's two streams. `was`: (place, value) of each change; value 0: it is not there."""

    o: Stream = Stream()
    ck: Stream = Stream()
    was: tuple[tuple[int, int], ...] = ()

    def at(self, place: int) -> int:
        return next((value for when, value in reversed(self.was) if when <= place), 0)

    def written(self, place: int) -> Object:
        was = (*self.was, (place, self.at(place) + 1))
        return replace(self, o=self.o.joined(place, "+"), was=was)

    @property
    def ended(self) -> int:
        """The deletion behind which nothing came."""
        last = self.ck.rows[-1] if self.ck.rows else None
        return last[0] if last is not None and last[1] == "D" and self.o.newest <= last[0] else 0


TRIMMED = -1


@dataclass(frozen=True)
class Book:
    """See the module. `known`: (value, seen) of both, of a process that read them."""

    rules: Rules
    left: Left
    objects: tuple[Object, Object] = (Object(), Object())
    end: int = 0
    floor: int = 0
    known: tuple[tuple[int, int], tuple[int, int]] | None = None

    # -- what happens

    def moves(self) -> Iterator[tuple[str, Book]]:
        left, (x, y) = self.left, self.objects
        place = self.end + 1
        if left.writes:
            after = replace(self, left=replace(left, writes=left.writes - 1), end=place)
            yield "something else is written", after
            yield "both are written", replace(after, objects=(x.written(place), y.written(place)))
            for at, one in enumerate(self.objects):
                yield f"{'xy'[at]} is written", after._with(at, one.written(place))
        for at, one in enumerate(self.objects):
            if left.deletions and one.at(self.end):
                after = replace(self, left=replace(left, deletions=left.deletions - 1), end=place)
                deleted = Object(one.o.joined(place, "D"), one.ck.joined(place, "D"), (*one.was, (place, 0)))
                yield f"{'xy'[at]} is deleted", after._with(at, deleted)
            yield from self._goes(at, one)
        if left.checkpoints and x.at(self.end):
            after = replace(self, left=replace(left, checkpoints=left.checkpoints - 1), end=place)
            yield "x is checkpointed", after._with(0, replace(x, ck=x.ck.joined(place, (self.end, x.at(self.end)))))
        if left.known and self.end:
            first, second = ((one.at(self.end), self._seen(one)) for one in self.objects)
            yield "both are known", replace(self, left=replace(left, known=left.known - 1), known=(first, second))

    def _goes(self, at: int, one: Object) -> Iterator[tuple[str, Book]]:
        """Trims by the newest checkpoint, when the log has gone on; and what has ended is forgotten, first its records."""
        name = "xy"[at]
        if one.ck.rows:
            seqnum, what = one.ck.rows[-1]
            covers = seqnum if isinstance(what, str) else what[0]
            trimmed = replace(one, o=one.o.trimmed(covers + 1), ck=one.ck.trimmed(seqnum))
            if trimmed != one and covers < self.end:
                yield f"{name} is trimmed", self._with(at, trimmed)
        if one.ended and one.o.newest and not one.o.rows:
            forgotten = replace(one, o=Stream())
            yield f"{name} is forgotten", self._with(at, forgotten, floor=max(self.floor, one.o.newest))
        elif one.ended and not one.o.newest:
            forgotten = replace(one, ck=Stream())
            yield f"the end of {name} is forgotten", self._with(at, forgotten, floor=max(self.floor, one.ck.newest))

    def _with(self, at: int, one: Object, *, floor: int = 0) -> Book:
        objects = (one, self.objects[1]) if at == 0 else (self.objects[0], one)
        return replace(self, objects=objects, floor=floor or self.floor)

    def _seen(self, one: Object) -> int:
        last = one.o.last(self.end)
        if one.at(self.end) and last is not None:
            return last[0]
        return self.end if self.rules.absence_has_a_place else 0

    # -- reading

    def fault(self) -> str | None:
        for name, one in zip("xy", self.objects, strict=True):
            fault = _fault_of(self.rules, one, self.end, self.floor)
            if fault is not None:
                return f"{name} {fault}"
        return self._brought_up() if self.known is not None else None

    def _brought_up(self) -> str | None:
        """Fold the new records of both objects into the process's knowledge: a record of both names both."""
        assert self.known is not None
        records: dict[int, dict[int, str | tuple[int, int]]] = {}
        for one, (_, seen) in zip(self.objects, self.known, strict=True):
            start = seen + 1
            if _gap(self.rules, one.o, self.floor, start, self.end + 1, beginning=not seen):
                return None  # it begins again
            for place, _ in one.o.rows:
                if place >= start:
                    records[place] = {}
        for at, one in enumerate(self.objects):
            changes = dict(one.was)
            for place in records:
                if place in changes:
                    records[place][at] = "D" if not changes[place] else "+"
        for at, (value, seen) in enumerate(self.known):
            for place in sorted(records):
                if at in records[place] and place > seen:
                    value = 0 if records[place][at] == "D" else value + 1
            if value != self.objects[at].at(self.end):
                return f"what was known of {'xy'[at]} became {value}, and it is {self.objects[at].at(self.end)}"
        return None


@cache
def _fault_of(rules: Rules, one: Object, end: int, floor: int) -> str | None:
    """Return what is wrong with reads of an object by a process that has only the log."""
    for place in range(1, end + 1):
        found = _read(rules, one, place, floor)
        if found != one.at(place) and (found != TRIMMED or place == end):
            return f"is read as {found} at {place} of {end}, and it was {one.at(place)}"
    return None


def _gap(rules: Rules, stream: Stream, floor: int, start: int, stop: int, *, beginning: bool = False) -> int:
    """Below it something may be missing from `start` on; 0: nothing is."""
    known = floor if rules.floor else 0
    return rules.engine(One(stream), known, 1, 1, looked=start, stop=stop, from_beginning=beginning)


def _newest(rules: Rules, stream: Stream, place: int, floor: int) -> tuple[int, str | tuple[int, int]] | int | None:
    """The newest row at or below a place, or TRIMMED."""
    found = stream.last(place)
    below = rules.floor and found is None and place < floor
    return TRIMMED if place < stream.mark or below else found


def _read(rules: Rules, one: Object, place: int, floor: int) -> int:
    """The object as of a place."""
    last, checkpoint = _newest(rules, one.o, place, floor), _newest(rules, one.ck, place, floor)
    if last == TRIMMED or (last is None and checkpoint == TRIMMED):
        return TRIMMED
    value = covers = 0
    if isinstance(checkpoint, tuple):
        seqnum, what = checkpoint
        covers, value = (seqnum, 0) if isinstance(what, str) else what
    if last is None and checkpoint is None:
        return 0
    start = 1 if not value and rules.end_is_read_from_1 else covers + 1
    stop = max(last[0] if isinstance(last, tuple) else place, covers) + 1
    if isinstance(last, tuple) and not rules.fold_ends_at_a_record:
        stop -= 1
    if stop > start and _gap(rules, one.o, floor, start, stop) > covers + 1:
        return TRIMMED
    for at, row in one.o.rows:
        if covers < at <= place:
            value = 0 if row == "D" else value + 1
    return value


@pytest.mark.parametrize("left", [Left(writes=3, deletions=2, checkpoints=1), Left(writes=4, deletions=1, known=1)])
def test_what_is_there_is_read_whatever_its_neighbour_forgets(left: Left) -> None:
    found = search(Book(Rules(), left))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 10_000


def _whatever_lives(
    streams: Streams, floor: int, book: int, tag: int, *, looked: int, stop: int, from_beginning: bool = False
) -> int:
    """The engine's former rule: a floor above the end of a range hides the beginning of streams with live records in it."""
    end = min(streams.mark(book, tag), stop)
    at = max(looked, end)
    if at > floor or looked > 1 or from_beginning or stop > floor or streams.own_mark(book, tag):
        return missing_until(streams, floor, book, tag, looked=looked, stop=stop, from_beginning=from_beginning)
    return min(floor + 1, streams.next(book, tag, at) or stop, stop)


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        (Rules(fold_ends_at_a_record=False), Left(writes=3, deletions=1)),
        (Rules(end_is_read_from_1=False), Left(writes=3, deletions=2)),
        (Rules(floor=False), Left(writes=2, deletions=1)),
        (Rules(absence_has_a_place=False), Left(writes=4, deletions=1, known=1)),
        (Rules(engine=_whatever_lives), Left(writes=3, deletions=1)),
    ],
)
def test_without_a_rule_an_object_cannot_be_read_or_comes_back(rules: Rules, left: Left) -> None:
    found = search(Book(rules, left))
    assert found.fault is not None and found.path, found
