"""What a LogBook means, as plainly as it can be said: one list per stream, one dict of answers per writer. Pure.

The model of all books of one physical log (DESIGN §6, §7). It is not an engine and shares no code with one: engines are
compared with it. There are no batches, terms, caches or indexes here; each append is ordered and decided on its own.

Order of a verdict: dedupe, then condition. Whatever the verdict, the record has taken its place in the log.

A trim moves marks: of one stream, or (stream 0) of the whole book. The mark of one stream moves only if the trim takes a record of it: a
mark says that records are missing below. A record lives while it is above the book's mark, and has no tags or is above the mark of one
of them. The newest seqnum of a stream outlives its records, until a trim forgets it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from boki_common.ids import seqnum as pack_seqnum
from boki_common.records.void_checksums import compared_to
from boki_common.runtime.process import SystemRandom
from boki_common.writer_ids import birth_of

TERM: Final = 1
"""A model lives one term long."""
ALL: Final = 0
"""The stream of every record of a book."""
ANSWERS_KEPT: Final = 1_024
"""Of a named writer."""
MINUTE_MS: Final = 60_000
FORGET_MINUTES: Final = 60
"""A stream is forgotten when its newest record is older than this, by whole minutes of the clock of the log (DESIGN §7), if nothing
else is said."""
FORGOTTEN: Final = 2**64 - 1
"""Newest seqnum of a stream that was forgotten, as a conflict tells it."""


class Outcome(Enum):
    COMMITTED = "committed"
    CONFLICT = "conflict"
    NEVER = "never"
    GAP = "gap"
    FORGOTTEN = "forgotten"
    REUSED = "reused"
    TOO_OLD = "too old"


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
    named: bool = False
    checksum: int = 0
    """Of a named writer's record: two records under one number must have the same."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an append; `seqnum` of a GAP is the last number that was decided, of a TOO_OLD the birth that a new
    writer has to be born after."""

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
    named: bool = False
    answers: dict[int, tuple[Answer, int | None]] = field(default_factory=dict)
    """By number; with the checksum of a named writer's record, None for one that was voided."""


class Model:
    """All books of a cluster."""

    def __init__(self, *, forget_age_ms: int = FORGET_MINUTES * MINUTE_MS) -> None:
        self._forget_age_ms = forget_age_ms
        self.cluster = SystemRandom().token(16).hex()
        """What it calls itself: tokens of another one are refused."""
        self.end = 0
        """Places taken so far."""
        self.entries = 0
        """The metalog position: each append is a cut of its own, and each trim an entry."""
        self._time_ms = 0
        self._times: list[int] = []
        self._records: dict[int, Stored] = {}
        self._streams: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._newest: dict[tuple[int, int], int] = {}
        self._marks: dict[tuple[int, int], int] = {}
        self._floors: dict[int, int] = {}
        self._writers: defaultdict[tuple[int, bytes], _Writer] = defaultdict(_Writer)
        self._births: dict[int, int] = {}
        """By book, when the youngest of the writers was born that were forgotten."""

    @property
    def position(self) -> int:
        """Seqnum of the last place taken; 0 when there is none."""
        return pack_seqnum(TERM, self.end - 1) if self.end else 0

    # -- appending

    def append(self, item: Append, now_ms: int) -> Answer:
        """Orders one record and decides it."""
        place = pack_seqnum(TERM, self.end)
        self.end += 1
        self.entries += 1
        self._time_ms = max(self._time_ms, now_ms)
        self._times.append(self._time_ms)
        writer = self._writers[item.book, item.writer]
        if item.number <= writer.last:
            return self._again(item, writer)
        if item.number > writer.last + 1:
            return Answer(Outcome.GAP, writer.last)
        birth, forgotten = birth_of(item.writer), self._births.get(item.book, -1)
        if not writer.last and not item.named and birth is not None and birth <= forgotten:
            return Answer(Outcome.TOO_OLD, forgotten)
        answer = self._decide(item, place)
        writer.last = item.number
        writer.named = item.named
        kept_from = item.number - ANSWERS_KEPT + 1 if item.named else item.low
        writer.answers = {number: known for number, known in writer.answers.items() if number >= kept_from}
        writer.answers[item.number] = answer, None if answer.outcome is Outcome.NEVER else item.checksum
        if answer.outcome is Outcome.COMMITTED:
            self._records[place] = Stored(place, self._time_ms, item.tags, item.payload)
            for stream in (ALL, *item.tags):
                self._streams[item.book, stream].append(place)
                self._newest[item.book, stream] = place
        return answer

    @staticmethod
    def _again(item: Append, writer: _Writer) -> Answer:
        """A number that was decided before: the first's answer, if it is known and the first was the same record."""
        answer, checksum = writer.answers.get(item.number, (Answer(Outcome.FORGOTTEN), None))
        if item.named and checksum is not None:
            said = compared_to(checksum, item.checksum) if item.void else item.checksum
            return answer if said == checksum else Answer(Outcome.REUSED)
        return answer

    def last(self, book: int, writer: bytes) -> int:
        """The last decided number of a writer."""
        known = self._writers.get((book, writer))
        return 0 if known is None else known.last

    def forget_writers(self) -> None:
        """What the ordered EXPIRE does to all writers at once: later numbers of theirs are gaps. Session writers as old as one of
        them do not begin any more (ADR 23)."""
        for (book, name), writer in self._writers.items():
            birth = None if writer.named or not writer.last else birth_of(name)
            if birth is not None:
                self._births[book] = max(self._births.get(book, -1), birth)
        self._writers.clear()

    def _decide(self, item: Append, place: int) -> Answer:
        if item.void:
            return Answer(Outcome.NEVER)
        newest = {stream: self._seen(item.book, stream, allowed) for stream, allowed in item.expect}
        if any(newest[stream] > allowed for stream, allowed in item.expect):
            return Answer(Outcome.CONFLICT, actual=tuple(newest.items()))
        return Answer(Outcome.COMMITTED, place)

    def _seen(self, book: int, stream: int, allowed: int) -> int:
        """The newest seqnum of a stream as a condition sees it."""
        newest = self.newest(book, stream)
        return FORGOTTEN if not newest and 0 < allowed < self._floors.get(book, 0) else newest

    # -- trimming

    def trim(self, book: int, pairs: Iterable[tuple[int, int]], now_ms: int, *, forget: bool) -> None:
        """Moves marks; what lies below, and is ordered already, goes."""
        self.entries += 1
        self._time_ms = max(self._time_ms, now_ms)
        moved: dict[int, None] = {}
        for stream, before in pairs:
            moved[stream] = None
            mark = min(before, self.newest(book, stream) + 1)
            places = self._streams.get((book, stream), [])
            takes = stream == ALL or (places and places[0] < mark)
            if takes and mark > max(self.mark(book, stream), 1):
                self._marks[book, stream] = mark
        places = self._streams.get((book, ALL), [])
        for place in [place for place in places if not self._lives(book, self._records[place])]:
            del self._records[place]
        for stream in self._streams_of(book):
            mark = self.mark(book, stream)
            kept = [place for place in self._streams[book, stream] if place in self._records and place >= mark]
            self._streams[book, stream] = kept
        if forget and ALL in moved and self._forgettable(book, ALL):
            moved = dict.fromkeys(self._streams_of(book))
            self._forget(book, moved)
        elif forget:
            self._forget(book, [stream for stream in moved if stream != ALL and self._forgettable(book, stream)])

    def _streams_of(self, book: int) -> list[int]:
        return [stream for owner, stream in self._newest if owner == book]

    def _lives(self, book: int, record: Stored) -> bool:
        if record.seqnum < self._marks.get((book, ALL), 0):
            return False
        return not record.tags or any(self._holds(book, tag, record.seqnum) for tag in record.tags)

    def _holds(self, book: int, stream: int, seqnum: int) -> bool:
        """Whether a stream still has a record: one that was forgotten has none, though it has no mark any more."""
        places = self._streams[book, stream]
        at = bisect_left(places, seqnum)
        return at < len(places) and places[at] == seqnum >= self._marks.get((book, stream), 0)

    def _forgettable(self, book: int, stream: int) -> bool:
        """Whether a stream is empty, and its newest record old."""
        newest = self.newest(book, stream)
        if not newest or self._streams[book, stream]:
            return False
        ordered_ms = self._times[newest - pack_seqnum(TERM, 0)]
        return ordered_ms // MINUTE_MS < (self._time_ms - self._forget_age_ms) // MINUTE_MS

    def _forget(self, book: int, streams: Iterable[int]) -> None:
        """Streams are as if they had never been; the floor keeps what was expected of them from holding."""
        for stream in streams:
            newest = self._newest.pop((book, stream))
            self._marks.pop((book, stream), None)
            self._floors[book] = max(self._floors.get(book, 0), newest)

    def mark(self, book: int, stream: int) -> int:
        """What lies below it in the stream is trimmed; 0 when nothing ever was."""
        return max(self._marks.get((book, ALL), 0), self._marks.get((book, stream), 0))

    def missing(self, book: int, stream: int, looked: int, stop: int, *, anew: bool) -> int:
        """Return the seqnum below which records of a stream may be missing, trimmed or forgotten, from `looked` on; `looked` if none.

        A forgotten stream shows neither a mark nor a record from before. A read from its beginning (`anew`) takes it for a new stream,
        unless it may still have been there as of `stop`: not if `stop` is above the floor, or a record that lives is below `stop`.
        """
        mark, newest = self.mark(book, stream), self.newest(book, stream)
        until = max(looked, min(mark, stop))
        if stream == ALL or until > self.floor(book) or (book, stream) in self._marks:
            return until
        places = self._streams.get((book, stream), [])
        dead = bisect_left(places, until)
        first = places[dead : dead + 1]
        if anew and (stop > self.floor(book) or any(place < stop for place in first)):
            return until
        known = newest and (newest < until or dead)
        return until if known else max(until, min([self.floor(book) + 1, stop, *first]))

    def floor(self, book: int) -> int:
        """The newest record of all streams of the book that were forgotten; 0 when none was."""
        return self._floors.get(book, 0)

    # -- reading

    def seek(self, time_ms: int) -> int:
        """The first place that was ordered at or after a time; behind all that there are, if there is none."""
        return pack_seqnum(TERM, bisect_left(self._times, time_ms))

    def has(self, book: int, seqnum: int) -> bool:
        """Whether a record lives."""
        return bool(self.upwards(book, ALL, seqnum, seqnum + 1, 1))

    def newest(self, book: int, stream: int) -> int:
        """Seqnum of the newest record that ever joined a stream, 0 for none."""
        return self._newest.get((book, stream), 0)

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
