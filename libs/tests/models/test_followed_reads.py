"""A model of reads from memory of a followed object: one session, the engine that answers it, and a cursor.

Other sessions change the object x and other objects; this session appends, appends to another book, adopts the token of another session,
and moves to an engine that is behind. A request of the cursor carries the session's token; the answer waits until the engine has applied
it, has one record per page, and may be lost. A record that is trimmed before its delivery is a gap. Time advances in steps.

In every execution a read from memory returns the state of some place at or above the session's token, and no older than a read of the log
would have returned at some moment of the last `WITHIN` steps. If a rule is turned off, the search finds a read that is older, or a state
that never existed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search

WITHIN = 1


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    by_token: bool = True
    """The session has seen up to its token, not up to the highest place of this book that it knows."""
    requested_lately: bool = True
    all_is_given: bool = True
    waits_for_the_token: bool = True
    gap_ends_it: bool = True
    begins_behind_its_view: bool = True
    backlog_first: bool = True


@dataclass(frozen=True)
class Left:
    """The steps that are left."""

    theirs: int = 2
    ours: int = 1
    others: int = 1
    tokens: int = 1
    engines: int = 1
    trims: int = 1
    ticks: int = 2
    asks: int = 2


@dataclass(frozen=True)
class Cursor:
    """The delivered changes of x. All at or below `position` were delivered, unless the cursor is behind.

    Attributes:
        covered: what the session may have seen for this to be current; -1: it is not. asked: when that was asked for.
        next: what of x it asks for. request: (token, time) of the one that is under way.
    """

    position: int
    next: int
    covered: int = -1
    asked: int = 0
    request: tuple[int, int] | None = None


@dataclass(frozen=True)
class World:
    """Entries of the log are "x", or "o": anything else. The session has read x at 1, and it is followed from there."""

    rules: Rules
    left: Left = Left()
    log: str = "x"
    mark: int = 0
    engine: int = 1
    had: tuple[int, ...] = (1,)
    """The place that the engine of this session had at least applied, in each step of time."""
    token: int = 1
    book: int = 1
    cursor: Cursor | None = None
    view: tuple[int, int] = (1, 1)
    """(changes that are in it, the last of them)."""
    reading: tuple[int, int] | None = None
    """Read the view again, and follow it from now on."""
    wrong: str | None = None

    def fault(self) -> str | None:
        return self.wrong

    def truth(self, place: int) -> int:
        return self.log[:place].count("x")

    def moves(self) -> Iterator[tuple[str, World]]:
        left = self.left
        end = len(self.log) + 1
        if left.theirs:
            for what in "xo":
                yield (
                    f"they write {what}",
                    replace(self, log=self.log + what, left=replace(left, theirs=left.theirs - 1)),
                )
        if left.ours:
            after = replace(self, log=self.log + "x", token=end, book=end, engine=end)
            yield "we write x", replace(after, left=replace(left, ours=left.ours - 1))
        if left.others:
            after = replace(self, log=self.log + "o", token=end, engine=end, left=replace(left, others=left.others - 1))
            yield "we write to another book", after
        if left.tokens:
            yield "a token is merged", replace(self, token=end - 1, left=replace(left, tokens=left.tokens - 1))
        if left.engines and self.engine > 1:
            behind = replace(self.cursor, request=None) if self.cursor else None
            yield (
                "moved to an engine behind",
                replace(
                    self,
                    engine=self.engine - 1,
                    had=(*self.had[:-1], min(self.had[-1], self.engine - 1)),
                    cursor=behind,
                    left=replace(left, engines=left.engines - 1),
                ),
            )
        if self.engine < len(self.log):
            yield "the engine goes on", replace(self, engine=self.engine + 1)
        if left.trims and self.truth(len(self.log)) > self.truth(self.mark):
            newest = self.log.rindex("x") + 1
            yield "x is checkpointed and trimmed", replace(self, mark=newest, left=replace(left, trims=left.trims - 1))
        if left.ticks:
            yield "time", replace(self, had=(*self.had, self.engine), left=replace(left, ticks=left.ticks - 1))
        yield from self._follows()
        if self.cursor is not None and self._current(self.cursor):
            yield "reads", self._read()

    # -- the cursor

    def _follows(self) -> Iterator[tuple[str, World]]:
        cursor, left = self.cursor, self.left
        if cursor is None:
            if self.reading is None and self.engine >= self.token:
                seen = self.log.rindex("x", 0, self.engine) + 1
                yield (
                    "x is read",
                    replace(self, reading=(self.truth(self.engine), seen), token=self.engine, book=self.engine),
                )
            elif self.reading is not None:
                yield "x is followed", self._followed(self.reading)
        elif cursor.request is None:
            if left.asks:
                asking = replace(cursor, request=(self.token, len(self.had) - 1))
                yield "asks", replace(self, cursor=asking, left=replace(left, asks=left.asks - 1))
        else:
            token, asked = cursor.request
            yield "the answer is lost", replace(self, cursor=replace(cursor, request=None))
            if self.engine >= token or not self.rules.waits_for_the_token:
                yield "answers", self._answered(cursor, max(token, self.engine), asked)

    def _followed(self, view: tuple[int, int]) -> World:
        begin = view[1] + 1 if self.rules.begins_behind_its_view else len(self.log) + 1
        covered = -1 if self.rules.backlog_first else self.engine
        cursor = Cursor(self.engine, begin, covered, len(self.had) - 1)
        return replace(self, cursor=cursor, view=view, reading=None)

    def _answered(self, cursor: Cursor, covers: int, asked: int) -> World:
        """Return a page: at most one record."""
        after = replace(self, token=max(self.token, self.engine), book=max(self.book, self.engine))
        records = [at for at in range(cursor.next, self.engine + 1) if self.log[at - 1] == "x"]
        if cursor.next < self.mark <= self.engine and any(at < self.mark for at in records):
            if self.rules.gap_ends_it:
                return replace(after, cursor=None)
            records = [at for at in records if at >= self.mark]
        view = self.view
        if records:
            view = view[0] + 1, records[0]
        whole = len(records) < 2
        reached = self.engine if whole else records[0]
        covered = covers if whole or not self.rules.all_is_given else -1
        place = max(cursor.position, reached)
        return replace(
            after, view=view, cursor=Cursor(place, max(cursor.next, reached + 1), covered, asked), reading=None
        )

    def _current(self, cursor: Cursor) -> bool:
        if self.rules.requested_lately and cursor.asked < len(self.had) - 1 - WITHIN:
            return False
        seen = self.token if self.rules.by_token else self.book
        return cursor.covered >= seen

    # -- a read from memory

    def _read(self) -> World:
        least = max(self.token, min(self.had[-1 - WITHIN :]))
        states = {self.truth(place) for place in range(least, len(self.log) + 1)}
        if self.view[0] in states:
            return self
        return replace(self, wrong=f"returned {self.view[0]}, and at {least} or later it is {sorted(states)}")


START = World(Rules(), cursor=Cursor(position=1, next=2))


@pytest.mark.parametrize("left", [Left(theirs=1, ticks=1), Left(ours=0, others=0)])
def test_a_read_from_memory_is_as_new_as_all_that_the_session_has_seen(left: Left) -> None:
    found = search(replace(START, left=left))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 5_000


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("by_token", Left(theirs=1, ours=0, others=0, tokens=1, engines=0, trims=0, ticks=0, asks=1)),
        ("by_token", Left(theirs=1, ours=0, others=1, tokens=0, engines=0, trims=0, ticks=0, asks=1)),
        ("requested_lately", Left(theirs=1, ours=0, others=0, tokens=0, engines=0, trims=0, ticks=2, asks=1)),
        ("all_is_given", Left(theirs=2, ours=0, others=0, tokens=0, engines=0, trims=0, ticks=0, asks=1)),
        ("waits_for_the_token", Left(theirs=1, ours=0, others=0, tokens=1, engines=0, trims=0, ticks=0, asks=1)),
        ("gap_ends_it", Left(theirs=2, ours=0, others=0, tokens=0, engines=0, trims=1, ticks=0, asks=1)),
        ("begins_behind_its_view", Left(theirs=2, ours=0, others=0, tokens=0, engines=0, trims=0, ticks=0, asks=1)),
        ("backlog_first", Left(theirs=1, ours=0, others=0, tokens=1, engines=0, trims=0, ticks=0, asks=0)),
    ],
)
def test_without_a_rule_a_read_is_older_than_it_may_be(rule: str, left: Left) -> None:
    begin = START if rule not in ("begins_behind_its_view", "backlog_first") else replace(START, cursor=None)
    found = search(replace(begin, rules=replace(Rules(), **{rule: False}), left=left))
    assert found.fault is not None and found.path, found
