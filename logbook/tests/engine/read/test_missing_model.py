"""What a reader may conclude from a mark, a floor, the rows and the newest record of a stream: every history of two streams of one book.

Records are written to x and y, streams and the whole book are trimmed, emptied streams are forgotten. In every state every range is read.

- A reader that names a start above 1 has seen what lies below: each record that was ever there and is not any more lies in its gap.
- A reader from the beginning gets the stream as it was as of the end of its range. What was forgotten with its newest record at or below
  that place had ended, so it need not be reported. All else that is missing lies in its gap.
- No gap is answered without need: none beyond the marks to a reader from the beginning if a record of the stream lives in its range, or the
  range ends at what is newest; none to a reader that names a start if the stream shows a mark of its own or a record below that.

The engine's rule and the model's of `MemoryCluster` give the same answers; each part of the rule is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from tests.engine.read.test_tag_lookup import Plain

from boki.testing._model import Append, Model
from boki_logbook.read.tag_lookup import Streams, missing_until

BOOK, X, Y = 1, 1, 2
ZERO = 1 << 35
"""Below the first record of a model."""
Rule = Callable[[Streams, int, int, int], int]
"""streams, floor, looked and stop, of tag X of the book"""


@dataclass(frozen=True)
class Life:
    """One stream since it was new: all its records, and the place of its forgetting, 0 while it is not forgotten."""

    records: tuple[int, ...] = ()
    forgotten: int = 0


@dataclass(frozen=True)
class State:
    """A history of the book. `moves`: as the model is given them; `lives`: of x, the last one is the present."""

    left: int
    moves: tuple[tuple[str, int, int], ...] = ()
    end: int = 0
    lives: tuple[Life, ...] = (Life(),)
    x: tuple[tuple[int, ...], int, int] = ((), 0, 0)
    """rows, own mark, newest"""
    y: tuple[tuple[int, ...], int, int] = ((), 0, 0)
    book: int = 0
    floor: int = 0

    def following(self) -> Iterator[State]:
        if not self.left:
            return
        place = self.end + 1
        for tag, (rows, mark, newest) in ((X, self.x), (Y, self.y)):
            yield self._with("write", tag, 0, ((*rows, place), mark, place), end=place)
            cuts = (*rows[1:], newest + 1) if rows else ()
            for before in cuts:
                kept = tuple(row for row in rows if row >= before)
                if before > max(mark, self.book):
                    yield self._with("trim", tag, before, (kept, before, newest))
            if newest and not rows and newest < max(mark, self.book):
                yield self._with("forget", tag, newest + 1, ((), 0, 0), floor=max(self.floor, newest))
        if self.end and self.book <= self.end:
            before = self.end + 1
            moves = (*self.moves, ("trim", 0, before))
            yield replace(self, left=self.left - 1, moves=moves, book=before, x=((), *self.x[1:]), y=((), *self.y[1:]))

    def _with(
        self,
        move: str,
        tag: int,
        before: int,
        stream: tuple[tuple[int, ...], int, int],
        *,
        end: int = 0,
        floor: int = 0,
    ) -> State:
        moves = (*self.moves, (move, tag, before))
        after = replace(self, left=self.left - 1, moves=moves, end=end or self.end, floor=floor or self.floor)
        if tag == Y:
            return replace(after, y=stream)
        life = self.lives[-1]
        if move == "write":
            lives = (*self.lives[:-1], Life((*life.records, after.end)))
        else:
            lives = (*self.lives[:-1], replace(life, forgotten=self.end), Life()) if move == "forget" else self.lives
        return replace(after, x=stream, lives=lives)

    # -- what the engine and the model see

    def streams(self) -> Plain:
        tagged = {X: self.x, Y: self.y}
        return Plain(
            {tag: [ZERO + row - 1 for row in rows] for tag, (rows, _, _) in tagged.items()},
            {tag: ZERO + mark - 1 for tag, (_, mark, _) in tagged.items() if mark},
            book=ZERO + self.book - 1 if self.book else 0,
            newest={tag: ZERO + newest - 1 for tag, (_, _, newest) in tagged.items() if newest},
        )

    def model(self) -> Model:
        """The model after the same moves, each minutes after the one before."""
        model, now_ms = Model(forget_age_ms=60_000), 0
        for number, (move, tag, before) in enumerate(self.moves, 1):
            now_ms += 300_000
            if move == "write":
                model.append(
                    Append(BOOK, b"w" * 16, 1 + sum(m[0] == "write" for m in self.moves[: number - 1]), 1, (tag,), b""),
                    now_ms,
                )
            else:
                model.trim(BOOK, [(tag, ZERO + before - 1)], now_ms, forget=move == "forget")
        return model

    # -- what is true

    def must_report(self, start: int, stop: int) -> set[int]:
        """Records of x in [start, stop) that are gone, and that a reader of this range has to be told of."""
        found: set[int] = set()
        for life in self.lives:
            if start == 1 and life.forgotten and life.records[-1] < stop:
                continue
            found |= {record for record in life.records if start <= record < stop}
        return {record for record in found if record not in self.x[0] or record < self.book}

    def faults(self, rule: Rule) -> Iterator[str]:
        streams = self.streams()
        rows, mark, _ = self.x
        floor = ZERO + self.floor - 1 if self.floor else 0
        for start in range(1, self.end + 2):
            begin = ZERO + start - 1 if start > 1 else 1
            for stop in range(start + 1, self.end + 3):
                until = rule(streams, floor, begin, ZERO + stop - 1)
                upto = until - ZERO + 1 if until else 0
                what = f"{self.moves}: x from {start} to below {stop} has a gap to below {upto}"
                if hidden := {record for record in self.must_report(start, stop) if record >= upto}:
                    yield f"{what}, and {hidden} are missing"
                marks = max(mark, self.book)
                shows = mark or any(row < start for row in rows)
                lives = any(start <= row < stop for row in rows)
                if upto > marks and (shows if start > 1 else lives or stop > self.end):
                    yield f"{what}, and nothing is missing from {marks} on"


def states(left: int) -> Iterator[State]:
    seen: dict[State, None] = {}
    todo = deque([State(left)])
    while todo:
        state = todo.popleft()
        key = replace(state, left=0, moves=())
        if key in seen:
            continue
        seen[key] = None
        yield state
        todo += state.following()


def engine(streams: Streams, floor: int, looked: int, stop: int) -> int:
    return missing_until(streams, floor, BOOK, X, looked=looked, stop=stop)


def test_all_that_is_missing_lies_in_gaps_and_no_gap_is_without_need() -> None:
    count = 0
    for state in states(7):
        count += 1
        assert list(state.faults(engine)) == []
    assert count > 5_000


def test_the_model_answers_the_same_gaps() -> None:
    for state in states(5):
        model, streams = state.model(), state.streams()
        floor = ZERO + state.floor - 1 if state.floor else 0
        assert (model.floor(BOOK), model.mark(BOOK, X)) == (floor, streams.mark(BOOK, X)), state.moves
        for looked in (1, *range(ZERO + 1, ZERO + state.end + 1)):
            for stop in range(max(looked, ZERO) + 1, ZERO + state.end + 2):
                for anew in (looked <= 1, True):
                    ours = missing_until(streams, floor, BOOK, X, looked=looked, stop=stop, from_beginning=anew)
                    theirs = model.missing(BOOK, X, looked, stop, anew=anew)
                    assert max(ours, looked) == theirs, (state.moves, looked, stop, anew)


# -- without a part of the rule


def marks_only(streams: Streams, floor: int, looked: int, stop: int) -> int:
    return missing_until(streams, 0, BOOK, X, looked=looked, stop=stop)


def whatever_lives(streams: Streams, floor: int, looked: int, stop: int) -> int:
    """A floor above the end of the range is a gap, though a record lives in the range."""
    end = min(streams.mark(BOOK, X), stop)
    at = max(looked, end)
    if at > floor or looked > 1 or stop > floor or streams.own_mark(BOOK, X):
        return engine(streams, floor, looked, stop)
    return min(floor + 1, streams.next(BOOK, X, at) or stop, stop)


def wherever_it_lives(streams: Streams, floor: int, looked: int, stop: int) -> int:
    """A record that lives proves the beginning, though it lies behind the range."""
    beginning = looked <= 1 and streams.next(BOOK, X, looked)
    return marks_only(streams, floor, looked, stop) if beginning else engine(streams, floor, looked, stop)


def beginning_is_always_new(streams: Streams, floor: int, looked: int, stop: int) -> int:
    return (marks_only if looked <= 1 else engine)(streams, floor, looked, stop)


def mark_of_the_book_counts(streams: Streams, floor: int, looked: int, stop: int) -> int:
    return (marks_only if streams.mark(BOOK, X) else engine)(streams, floor, looked, stop)


@pytest.mark.parametrize(
    "rule", [marks_only, whatever_lives, wherever_it_lives, beginning_is_always_new, mark_of_the_book_counts]
)
def test_without_a_part_of_the_rule_a_reader_is_told_too_little_or_too_much(rule: Rule) -> None:
    assert any(next(state.faults(rule), None) for state in states(7))
