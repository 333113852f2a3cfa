"""What a LogBook means, as plainly as it can be said: one list per stream, one dict of answers per writer. Pure.

The model of all books of one physical log (DESIGN §6, §7). It is not an engine and shares no code with one: engines are
compared with it. There are no batches, terms, caches or indexes here; each append is ordered and decided on its own.

Order of a verdict: dedupe, then condition. Whatever the verdict, the record has taken its place in the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from boki_common.ids import seqnum as pack_seqnum

TERM: Final = 1
"""A model lives one term long."""
ALL: Final = 0
"""The stream of every record of a book."""


class Outcome(Enum):
    COMMITTED = "committed"
    CONFLICT = "conflict"
    NEVER = "never"
    GAP = "gap"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Append:
    """One numbered record. `payload` is opaque; `expect` pairs (stream, newest allowed or 0 for none at all)."""

    book: int
    writer: bytes
    number: int
    low: int
    tags: tuple[int, ...]
    payload: bytes
    expect: tuple[tuple[int, int], ...] = ()
    void: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an append; `seqnum` of a GAP is the last number that was decided."""

    outcome: Outcome
    seqnum: int = 0
    actual: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    seqnum: int
    time_ms: int
    tags: tuple[int, ...]
    payload: bytes


@dataclass(slots=True)
class _Writer:
    last: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)


class Model:
    """All books of a cluster."""

    def __init__(self) -> None:
        self.end = 0
        """Places taken so far; also the metalog position, because each append is a cut of its own."""
        self._time_ms = 0
        self._records: dict[int, Stored] = {}
        self._streams: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._writers: defaultdict[tuple[int, bytes], _Writer] = defaultdict(_Writer)

    @property
    def position(self) -> int:
        """Seqnum of the last place taken; 0 when there is none."""
        return pack_seqnum(TERM, self.end - 1) if self.end else 0

    # -- appending

    def append(self, item: Append, now_ms: int) -> Answer:
        """Orders one record and decides it."""
        place = pack_seqnum(TERM, self.end)
        self.end += 1
        self._time_ms = max(self._time_ms, now_ms)
        writer = self._writers[item.book, item.writer]
        if item.number <= writer.last:
            return writer.answers.get(item.number, Answer(Outcome.FORGOTTEN))
        if item.number > writer.last + 1:
            return Answer(Outcome.GAP, writer.last)
        answer = self._decide(item, place)
        writer.last = item.number
        writer.answers = {number: known for number, known in writer.answers.items() if number >= item.low}
        writer.answers[item.number] = answer
        if answer.outcome is Outcome.COMMITTED:
            self._records[place] = Stored(place, self._time_ms, item.tags, item.payload)
            for stream in (ALL, *item.tags):
                self._streams[item.book, stream].append(place)
        return answer

    def forget_writers(self) -> None:
        """What the ordered EXPIRE does to all writers at once: later numbers of theirs are gaps."""
        self._writers.clear()

    def _decide(self, item: Append, place: int) -> Answer:
        if item.void:
            return Answer(Outcome.NEVER)
        newest = {stream: self.newest(item.book, stream) for stream, _ in item.expect}
        if any(newest[stream] > allowed for stream, allowed in item.expect):
            return Answer(Outcome.CONFLICT, actual=tuple(newest.items()))
        return Answer(Outcome.COMMITTED, place)

    # -- reading

    def newest(self, book: int, stream: int) -> int:
        """Seqnum of the newest record of a stream, 0 for none."""
        places = self._streams.get((book, stream))
        return places[-1] if places else 0

    def upwards(self, book: int, stream: int, start: int, stop: int, most: int) -> list[Stored]:
        """Records with start ≤ seqnum < stop, at most `most`."""
        places = self._streams.get((book, stream), [])
        first = bisect_left(places, start)
        return [self._records[place] for place in places[first : first + most] if place < stop]

    def downwards(self, book: int, stream: int, start: int, stop: int, most: int) -> list[Stored]:
        """Records with stop ≤ seqnum ≤ start, newest first, at most `most`."""
        places = self._streams.get((book, stream), [])
        end = bisect_right(places, start)
        return [self._records[place] for place in reversed(places[max(end - most, 0) : end]) if place >= stop]
