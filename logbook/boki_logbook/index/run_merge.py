"""Makes one run of neighbouring runs of the index in slices, so that nobody waits for all of it. Pure.

    merge = RunMerge(runs)
    while merge.work(SLICE_ROWS): ...      # others have their turn in between
    merge.result                           # a SortedRun, or None when nothing is left

Rules:
- A slice looks at `rows` rows at most, and at as many streams, however long a stream is and whatever lies side by side.
- Sources stay whole and are read on, until they are replaced. What dies in them meanwhile is passed on (`trim_book`, `trim`,
  `drop`) and done again on the result, before it is given: columns of `held` are taken as they were at the beginning.
- Rows that are dead, and streams that are forgotten, are left out; of a dead stream the last row stays, as sorted_run.py says.
- Told more than `CHANGED_PAIRS` of them it gives up (`overrun`), and is begun anew.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_logbook.index.sorted_run import CUT, LIVE, U8, U64, SortedRun, segment_rows

_Number = TypeVar("_Number", bound=np.generic)

MERGED_RUNS: Final = 4
"""So many neighbours of like size become one."""
DEAD_SHARE: Final = 4
"""A run is written anew when a row in so many is dead."""
CHANGED_PAIRS: Final = 64 * 1024
"""Marks and streams that are kept to be done again, at most."""
MAPPING_BYTES: Final = 512 * limits.KIB
"""Columns from this size on are not the allocator's."""
REPLAYED_PAIRS: Final = 64
"""Done again in one slice; each costs what it did on the sources: some 10 µs and the rows that die."""


def next_merge(lengths: Sequence[int], dead: Sequence[int], *, largest: int) -> tuple[int, int] | None:
    """Which runs to merge next, [first, stop); None: all is in order.

    First the one with most dead rows, if it is due; else the newest neighbours of which none is longer than the others
    together. So a row is merged again only into a run of twice as many rows, and of four neighbours one is longer than the
    rest, or all are too long for one run of `largest` rows.
    """
    worst = max(range(len(dead)), key=dead.__getitem__, default=-1)
    if worst >= 0 and dead[worst] and dead[worst] * DEAD_SHARE >= lengths[worst]:
        return worst, worst + 1
    for stop in range(len(lengths), MERGED_RUNS - 1, -1):
        group = lengths[stop - MERGED_RUNS : stop]
        rows = sum(group)
        if rows <= largest and 2 * max(group) <= rows:
            return stop - MERGED_RUNS, stop
    return None


class _Change(NamedTuple):
    """What died in the sources meanwhile. Without tags: the whole book below the only mark, or all of it forgotten."""

    book: int
    tags: U64 | None
    marks: Sequence[int]
    dropped_tag: int = -1


class _Source:
    """One run that is merged, and how far it is read: streams before `at` are done."""

    __slots__ = ("at", "gone", "held", "run")

    def __init__(self, run: SortedRun) -> None:
        self.run = run
        self.held, self.gone = run.share()
        self.at = 0

    @property
    def left(self) -> bool:
        return self.at < len(self.run.books)

    def gone_between(self, at: int, stop: int) -> NDArray[np.bool_] | None:
        """Which streams are forgotten; None: none is."""
        if self.gone is None or not any(self.gone[at:stop]):
            return None
        return np.frombuffer(self.gone[at:stop], np.bool_)

    def fitting(self, rows: int) -> int:
        """The streams from `at` to below this have `rows` rows at most."""
        offsets = self.run.offset_view
        return bisect_right(offsets, offsets[self.at] + rows, self.at, min(self.at + rows, len(offsets) - 1) + 1) - 1


class _Long(NamedTuple):
    """A stream of more rows than a slice, on its way: what is left of it per source."""

    key: tuple[int, int]
    parts: deque[tuple[_Source, int, int]]
    begin: int


class RunMerge:
    """See the module. Invariant: what is written are the whole streams below every source's `at`, and a part of `_long`."""

    def __init__(self, runs: Sequence[SortedRun]) -> None:
        self._sources = [_Source(run) for run in runs]
        self._clean = not any(run.dead or run.stale or run.has_forgotten for run in runs)
        streams, rows = sum(len(run.books) for run in runs), sum(map(len, runs))
        # Memory is taken for as much as there may be, and touched only as it is filled.
        self._books, self._tags = _column(streams, np.uint64), _column(streams, np.uint64)
        self._offsets = _column(streams + 1, np.uint32)
        self._offsets[0] = 0
        self._seqnums, self._held = _column(rows, np.uint64), _column(rows, np.uint8)
        self._streams = self._rows = 0
        self._oldest, self._newest = 2**64 - 1, 0
        self._stale = False
        self._long: _Long | None = None
        self._changes: deque[_Change] = deque()
        self._changed_pairs = 0
        self.looked_at = 0
        """Rows, and streams that are known of, that were looked at."""
        self._made: SortedRun | None = None
        self._all_read = self._ended = False

    @property
    def runs(self) -> list[SortedRun]:
        """The sources."""
        return [source.run for source in self._sources]

    @property
    def bytes(self) -> int:
        """Memory that is filled, besides the sources."""
        return 20 * self._streams + 9 * self._rows

    @property
    def overrun(self) -> bool:
        """Whether so much died meanwhile that nothing comes of it."""
        return self._changed_pairs > CHANGED_PAIRS

    @property
    def result(self) -> SortedRun | None:
        """The run that takes the place of the sources; None: nothing is left of them."""
        assert self._ended, "a merge is asked for its result when there is no work left"
        return self._made

    # -- dying

    def trim_book(self, book: int, mark: int) -> None:
        """As `SortedRun.trim_book` was done on the sources."""
        self._note(_Change(book, None, (mark,)), 1)

    def trim(self, book: int, tags: U64, marks: Sequence[int]) -> None:
        """As `SortedRun.trim` was done on the sources."""
        self._note(_Change(book, tags, marks), len(marks))

    def drop(self, book: int, tag: int) -> None:
        """As `SortedRun.drop` was done on the sources."""
        self._note(_Change(book, None, (), tag), 1)

    def _note(self, change: _Change, pairs: int) -> None:
        self._changed_pairs += pairs
        if not self.overrun:
            self._changes.append(change)

    def _replay(self) -> None:
        """Does some of what was passed on, on the result."""
        run, budget = self._made, REPLAYED_PAIRS
        while self._changes and run is not None and budget > 0:
            book, tags, marks, dropped_tag = self._changes.popleft()
            if dropped_tag >= 0:
                run.drop(book, dropped_tag)
            elif tags is None:
                run.trim_book(book, marks[0])
            else:
                if len(marks) > budget:
                    self._changes.appendleft(_Change(book, tags[budget:], marks[budget:]))
                    tags, marks = tags[:budget], marks[:budget]
                run.trim(book, tags, marks)
            budget -= max(1, len(marks))
            self.looked_at += max(1, len(marks))

    # -- working

    def work(self, rows: int) -> bool:
        """One slice; whether there is more to do."""
        if self._ended:
            return False
        if self._all_read:
            self._replay()
        elif self._long is not None or not self._slice(rows):
            self._copy_long(rows)
        if not self._all_read and self._long is None and not any(source.left for source in self._sources):
            self._finish()
        self._ended = self._all_read and (not self._changes or self._made is None)
        return not self._ended

    def _slice(self, rows: int) -> bool:
        """Merges streams that are whole; False: the next one is longer than a slice, and `_long` now."""
        sources = [source for source in self._sources if source.left]
        left = [len(source.run) - source.run.offset_view[source.at] for source in sources]
        # Half of the rows for all alike, half for those that have more: so they end together, and slices are full.
        even, rest, total = rows // (2 * len(sources)), rows // 2, sum(left)
        stops = [source.fitting(max(1, even + rest * one // total)) for source, one in zip(sources, left, strict=True)]
        first = min(source.run.key(source.at) for source in sources)
        mine = [source for source in sources if source.run.key(source.at) == first]
        if any(stop == source.at and source in mine for source, stop in zip(sources, stops, strict=True)):
            known = [source for source in mine if source.gone is None or not source.gone[source.at]]
            parts = deque((source, *source.run.span(source.at)) for source in known)
            for source in mine:
                source.at += 1
            self._long = _Long(first, parts, self._rows)
            return False
        windows = list(zip(sources, stops, strict=True))
        bound = min((one.run.key(stop) for one, stop in windows if stop < len(one.run.books)), default=None)
        if bound is not None:
            windows = [(one, one.run.streams_below(bound, one.at, stop)) for one, stop in windows]
        self._merge([(one, one.at, stop) for one, stop in windows if one.at < stop])
        for source, stop in windows:
            source.at = stop
        return True

    def _merge(self, windows: Sequence[tuple[_Source, int, int]]) -> None:
        """Writes the streams of some windows, all rows of which are looked at together."""
        books = np.concatenate([source.run.books[at:stop] for source, at, stop in windows])
        tags = np.concatenate([source.run.tags[at:stop] for source, at, stop in windows])
        ends = [source.run.offsets[at : stop + 1].astype(np.int64) for source, at, stop in windows]
        lengths = np.concatenate([end[1:] - end[:-1] for end in ends])
        seqnums = np.concatenate(
            [source.run.seqnums[end[0] : end[-1]] for (source, _, _), end in zip(windows, ends, strict=True)]
        )
        held = np.concatenate(
            [source.held[end[0] : end[-1]] for (source, _, _), end in zip(windows, ends, strict=True)]
        )
        self.looked_at += len(seqnums)
        gone = [source.gone_between(at, stop) for source, at, stop in windows]
        if any(one is not None for one in gone):
            known = np.concatenate(
                [
                    np.ones(stop - at, np.bool_) if one is None else ~one
                    for one, (_, at, stop) in zip(gone, windows, strict=True)
                ]
            )
            rows = np.repeat(known, lengths)
            books, tags, lengths, seqnums, held = books[known], tags[known], lengths[known], seqnums[rows], held[rows]
            if not len(books):
                return
        if len(windows) > 1:
            books, tags, lengths, rows = segment_rows(books, tags, lengths)
            seqnums, held = seqnums[rows], held[rows]
        if not self._clean:
            books, tags, lengths, seqnums, held = self._living(books, tags, lengths, seqnums, held)
        if len(seqnums):
            self._write(books, tags, lengths, seqnums, held)

    def _living(
        self, books: U64, tags: U64, lengths: NDArray[np.int64], seqnums: U64, held: U8
    ) -> tuple[U64, U64, NDArray[np.int64], U64, U8]:
        """What stays of whole streams."""
        of_all = tags == 0
        keep = np.where(np.repeat(of_all, lengths), held > 0, held == LIVE)
        if keep.all():
            return books, tags, lengths, seqnums, held
        ends = np.cumsum(lengths)
        last = ends - 1
        dead_last = ~keep[last] & (of_all | (held[last] != CUT))
        keep[last] |= dead_last
        self._stale |= bool(dead_last.any())
        lengths = np.add.reduceat(keep, ends - lengths, dtype=np.int64)
        streams = lengths > 0
        return books[streams], tags[streams], lengths[streams], seqnums[keep], held[keep]

    def _write(self, books: U64, tags: U64, lengths: NDArray[np.int64], seqnums: U64, held: U8) -> None:
        streams, at = self._streams + len(books), self._streams
        self._books[at:streams], self._tags[at:streams] = books, tags
        self._offsets[at + 1 : streams + 1] = self._rows + np.cumsum(lengths)
        self._streams = streams
        self._write_rows(seqnums, held)

    def _write_rows(self, seqnums: U64, held: U8) -> None:
        rows, at = self._rows + len(seqnums), self._rows
        self._seqnums[at:rows], self._held[at:rows] = seqnums, held
        self._rows = rows
        self._oldest = min(self._oldest, int(seqnums.min()))
        self._newest = max(self._newest, int(seqnums.max()))

    def _copy_long(self, rows: int) -> None:
        """Some rows of the stream that is on its way."""
        assert self._long is not None
        (book, tag), parts, begin = self._long
        if parts:
            source, at, end = parts.popleft()
            stop = min(end, at + rows)
            self.looked_at += stop - at
            if stop < end:
                parts.appendleft((source, stop, end))
            seqnums, held = source.run.seqnums[at:stop], source.held[at:stop]
            if not self._clean:
                keep = held == LIVE if tag else held > 0
                if not parts and not keep[-1] and (not tag or held[-1] != CUT):
                    keep[-1] = self._stale = True
                seqnums, held = seqnums[keep], held[keep]
            if len(seqnums):
                self._write_rows(seqnums, held)
        if not parts:
            self._long = None
            if self._rows > begin:
                self._books[self._streams], self._tags[self._streams] = book, tag
                self._streams += 1
                self._offsets[self._streams] = self._rows

    def _finish(self) -> None:
        """Everything is read: makes the run, on which is done what died meanwhile."""
        self._all_read = True
        if self._rows:
            streams, rows = self._streams, self._rows
            self._made = SortedRun(
                _begin(self._books, streams),
                _begin(self._tags, streams),
                _begin(self._offsets, streams + 1),
                _begin(self._seqnums, rows),
                _begin(self._held, rows),
                span=(self._oldest, self._newest),
            )
            self._made.stale = self._stale


def _column(count: int, kind: type[_Number]) -> NDArray[_Number]:
    """Memory for so many numbers. A large column is the system's own mapping: it is taken page by page, and given back whole,
    where the allocator would keep it, and holes in it."""
    size = count * np.dtype(kind).itemsize
    if size < MAPPING_BYTES:
        return np.empty(count, kind)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), kind)


def _begin(column: NDArray[_Number], count: int) -> NDArray[_Number]:
    """The numbers that were needed."""
    return column[:count] if column.nbytes >= MAPPING_BYTES or count == len(column) else column[:count].copy()


def merged(runs: Sequence[SortedRun]) -> SortedRun | None:
    """One run of several, at once; None: nothing of them lives."""
    merge = RunMerge(runs)
    while merge.work(max(1, sum(map(len, runs)))):
        pass
    return merge.result
