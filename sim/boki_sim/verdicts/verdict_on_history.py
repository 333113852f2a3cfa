"""Compares what clients were answered with the log as it is in the end. Pure, and written without any code of the log.

What it demands, per book (DESIGN §11.5 and §11.6):
- an acknowledged append is there, once, at its seqnum, with its tags, unless trims took it; a refused one is not;
- nothing is there that nobody appended, or that was trimmed; seqnums ascend;
- an append that began after another was acknowledged comes after it;
- a condition held at the record's own place in the log, and did not where it was refused;
- a read gave the right record of the final log, and never less than its session knew before: a linearizable one, than anybody
  knew; one that takes any engine's word is held to what it shows;
- what a read gave lies in what its session then claims to have seen: else another engine may not have it a moment later;
- what is answered beside records: `verdict_on_other_calls`.

It is quick and local: one violation shows which call is wrong. Linearizability as a whole is the checkers' business.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Final, NamedTuple

from boki_sim.checkers.history import ALL, Operation
from boki_sim.verdicts.known import Known, WhatIsKnown
from boki_sim.verdicts.verdict_on_other_calls import judge_other_calls
from boki_sim.work.operations import ANY, APPEND, AT, CONFLICT, LINEARIZABLE, NEVER, NEXT, OK, READ, TOKEN, TRIM

FORGET_AFTER_S: Final = 3_600.0
"""A stream is forgotten when its newest record is at least so old."""


class Entry(NamedTuple):
    """A record of the final log."""

    seqnum: int
    data: str
    tags: tuple[str, ...]
    time_ms: int = 0


class _Trims:
    """The trims of a book, by stream ("" is the whole book): what they may have taken, and what they have.

    Clients trim below what they have seen, so all that is below a bound was in the log before its trim.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._of: dict[str, list[Operation]] = defaultdict(list)
        for one in operations:
            if one.kind == TRIM and one.outcome != NEVER:
                self._of[one.tag].append(one)
        self._begun: dict[str, Known] = defaultdict(Known)
        """The highest bound of the trims of a stream, by when they began, and of those that were done, by when that was answered."""
        self._done: dict[str, Known] = defaultdict(Known)
        for stream, trims in self._of.items():
            for trim in sorted(trims, key=lambda trim: trim.start):
                self._begun[stream].learn(trim.start, trim.before)
            for trim in sorted((trim for trim in trims if trim.outcome == OK), key=lambda trim: trim.until):
                self._done[stream].learn(trim.until, trim.before)

    def may_forget(self, tag: str, newest: Operation, until: float, after_s: float) -> bool:
        """Whether a stream may have been emptied and forgotten, with its newest record, before an append that ended then."""
        seqnum = newest.seqnum or 0
        named = [trim for trim in (*self._of.get(tag, ()), *self._of.get("", ())) if trim.start <= until]
        return any(trim.before > seqnum for trim in named) and any(
            trim.forget and (trim.outcome != OK or trim.until - newest.start > after_s) for trim in named
        )

    def may_hide(self, entry: Entry, stream: str, until: float) -> bool:
        """Whether a read of a stream that ended then may miss a record that was there."""
        return self._is_below(entry, stream, lambda tag: self._begun[tag].upto(until))

    def may_hide_below(self, stream: str, until: float) -> int:
        """Below this seqnum such a read may miss every record of the stream."""
        return max(self._begun[""].upto(until), self._begun[stream].upto(until)) if self._of else 0

    def hide(self, entry: Entry, stream: str, since: float) -> bool:
        """Whether a read of a stream that began then cannot show the record, if it knows what was acknowledged to anybody."""
        return self._is_below(entry, stream, lambda tag: self._done[tag].before(since))

    def _is_below(self, entry: Entry, stream: str, bound: Callable[[str], int]) -> bool:
        """Whether the bound of the whole book, or those of all its streams that are read, are above a record."""
        if not self._of:
            return False
        if entry.seqnum < bound(""):
            return True
        tags = (stream,) if stream else entry.tags
        return bool(tags) and all(entry.seqnum < bound(tag) for tag in tags)


class _Book:
    """The log of a book, by stream ("" is all records): what is there in the end, and what is known of what trims took."""

    def __init__(self, entries: Sequence[Entry], operations: Sequence[Operation]) -> None:
        self.entries = entries
        self.trims = _Trims(operations)
        self.by_seqnum = {entry.seqnum: entry for entry in entries}
        self.gone: dict[str, int] = {}
        """Records that are not there in the end, because of a trim, and where they were."""
        self._add_gone(operations)
        self.streams: dict[str, list[int]] = defaultdict(list)
        for seqnum in sorted(self.by_seqnum):
            for tag in ("", *self.by_seqnum[seqnum].tags):
                self.streams[tag].append(seqnum)

    def _add_gone(self, operations: Sequence[Operation]) -> None:
        appends = {one.data: one for one in operations if one.kind == APPEND}
        there = {entry.data for entry in self.entries}
        for one in operations:
            if one.outcome != OK or one.place is None:
                continue
            data = one.rows[-1][1] if one.rows else one.data
            append = appends.get(data)
            if append is None or data in there:
                continue
            entry = Entry(one.place, data, append.tags, one.time_ms)
            known = self.by_seqnum.get(one.place)
            if known is not None and known.data == data and not known.time_ms:
                self.by_seqnum[one.place] = entry  # an append is answered without its time
            if append.outcome in (CONFLICT, NEVER) or known is not None:
                continue
            if self.trims.may_hide(entry, "", inf):
                self.by_seqnum[one.place] = entry
                self.gone[data] = one.place

    def between(self, tag: str, low: int, high: int) -> list[int]:
        """Seqnums of a stream in [low, high)."""
        rows = self.streams.get(tag, [])
        return rows[bisect_left(rows, low) : bisect_left(rows, high)]

    def shown_between(self, tag: str, low: int, high: int, until: float) -> Iterator[int]:
        """Those that a read which ended then cannot miss because of a trim."""
        for seqnum in self.between(tag, max(low, self.trims.may_hide_below(tag, until)), high):
            if tag or not self.trims.may_hide(self.by_seqnum[seqnum], tag, until):
                yield seqnum


def judge(
    operations: Sequence[Operation],
    books: dict[str, list[Entry]],
    *,
    read_from: float = -inf,
    forget_after_s: float = FORGET_AFTER_S,
) -> Iterator[str]:
    """What is wrong, as sentences.

    Args:
        read_from: when the reading of the books began.
        forget_after_s: so much virtual time must pass before a stream can be forgotten; less where clocks are fast.
    """
    by_book: dict[str, list[Operation]] = defaultdict(list)
    tokens: list[Operation] = []
    for operation in operations:
        (tokens if operation.kind == TOKEN else by_book[operation.book]).append(operation)
    for name in sorted(by_book.keys() | books.keys()):
        ours = by_book[name]
        book = _Book(books.get(name, []), ours)
        appends = [one for one in ours if one.kind == APPEND]
        known = WhatIsKnown([*ours, *tokens])
        yield from (f"book {name}: {text}" for text in _entries(book, appends, read_from))
        yield from (f"book {name}: {text}" for text in _real_time(appends))
        yield from (f"book {name}: {text}" for text in _conditions(book, appends, forget_after_s))
        yield from (f"book {name}: {text}" for text in _reads(book, ours, known))
        live = {entry.seqnum for entry in book.entries}
        times = {seqnum: book.by_seqnum[seqnum].time_ms for seqnum in sorted(book.by_seqnum)}
        yield from (f"book {name}: {text}" for text in judge_other_calls(ours, times, live, partial(_floor, known)))


def _entries(book: _Book, appends: Sequence[Operation], read_from: float) -> Iterator[str]:
    submitted = {one.data: one for one in appends}
    met: dict[str, int] = {}
    last = -1
    for entry in book.entries:
        if entry.seqnum <= last:
            yield f"seqnum {entry.seqnum} comes after {last}"
        last = entry.seqnum
        if entry.data in met:
            yield f"duplicate: {_short(entry.data)} is at {met[entry.data]} and at {entry.seqnum}"
        met[entry.data] = entry.seqnum
        origin = submitted.get(entry.data)
        if origin is None:
            yield f"phantom: nobody appended {_short(entry.data)} at {entry.seqnum}"
        elif sorted(origin.tags) != sorted(entry.tags):
            yield f"{_short(entry.data)} has tags {entry.tags}, appended with {origin.tags}"
        if book.trims.hide(entry, "", read_from):
            yield f"trimmed: {_short(entry.data)} at {entry.seqnum} is there after its trim was acknowledged"
    for one in appends:
        found = met.get(one.data, book.gone.get(one.data))
        if one.outcome == OK and found != one.seqnum:
            yield f"lost: {_short(one.data)} was acknowledged at {one.seqnum}, and is at {found}"
        if one.outcome in (CONFLICT, NEVER) and found is not None:
            yield f"{_short(one.data)} was refused ({one.error}), and is at {found}"


def _real_time(appends: Sequence[Operation]) -> Iterator[str]:
    """An append that began after an acknowledgement comes later in the log."""
    acked = sorted((one for one in appends if one.outcome == OK and one.seqnum is not None), key=lambda one: one.until)
    newest: Operation | None = None
    at = 0
    for one in sorted(acked, key=lambda one: one.start):
        while at < len(acked) and acked[at].until < one.start:
            if newest is None or (acked[at].seqnum or 0) > (newest.seqnum or 0):
                newest = acked[at]
            at += 1
        if newest is not None and (one.seqnum or 0) < (newest.seqnum or 0):
            yield (
                f"reordered: {_short(one.data)} began at {one.start:.4f} s and is at {one.seqnum}, before "
                f"{_short(newest.data)}, acknowledged at {newest.until:.4f} s, which is at {newest.seqnum}"
            )


def _conditions(book: _Book, appends: Sequence[Operation], forget_after_s: float) -> Iterator[str]:
    by_name = {one.data: one for one in appends}
    for one in appends:
        if one.seqnum is None:
            continue
        for tag, expected in one.expect.items():
            newer = book.between(tag, 0 if expected is None else expected + 1, one.seqnum)
            if not newer:
                continue
            newest = by_name.get(book.by_seqnum[newer[-1]].data)
            if expected is None and newest and book.trims.may_forget(tag, newest, one.until, forget_after_s):
                continue
            yield f"{_short(one.data)} at {one.seqnum} expected {tag} to end at {expected}, but it had {newer[-1]}"


def _floor(known: WhatIsKnown, one: Operation) -> int:
    """What was known when a read began: everything up to there it must see."""
    if one.consistency == ANY:
        return 0
    return known.anybody.before(one.start) if one.consistency == LINEARIZABLE else known.by(one.client, one.start)


def _reads(book: _Book, operations: Sequence[Operation], known: WhatIsKnown) -> Iterator[str]:
    for one in operations:
        if one.kind == READ and one.outcome == OK and not one.trimmed:  # of those the checkers judge
            yield from _read(book, one, _floor(known, one))


def _read(book: _Book, one: Operation, floor: int) -> Iterator[str]:
    found, tag = one.place, one.tag
    bound = one.low if one.how in (NEXT, AT) else None if one.high is None else one.high - 1
    what = f"{one.client} read {one.how} of {tag or 'all'} from {bound} ({one.consistency}) at {one.start:.4f} s"
    if found is not None:
        entry, shown = book.by_seqnum.get(found), one.rows[-1][1]
        if entry is None or entry.data != shown or (tag != ALL and tag not in entry.tags):
            yield f"{what} and got {found} {_short(shown)}, which is not in the log"
            return
        if one.position and found > one.position:
            yield f"{what} and got {found}, beyond {one.position}, which its session claims to have seen"
        if one.consistency == LINEARIZABLE and book.trims.hide(entry, tag, one.start):
            yield f"{what} and got {found}, after its trim was acknowledged"
    if one.how == AT:
        yield from (f"{what} and got {text}" for text in _wrong_place(book, one, floor))
    elif one.how == NEXT:
        yield from (f"{what} and got {text}" for text in _wrong_next(book, one, floor))
    else:
        yield from (f"{what} and got {text}" for text in _wrong_last(book, one, floor, bound))


def _wrong_place(book: _Book, one: Operation, floor: int) -> Iterator[str]:
    if one.place is None:
        there = next(book.shown_between(one.tag, one.low, min(floor, one.low) + 1, one.until), None)
        if there is not None:
            yield "nothing"
    elif one.place != one.low:
        yield f"{one.place}"


def _wrong_next(book: _Book, one: Operation, floor: int) -> Iterator[str]:
    end = floor + 1 if one.place is None else one.place
    missed = next(book.shown_between(one.tag, one.low, end, one.until), None)
    if missed is not None:
        yield f"{one.place}, passing by {missed}"
    if one.place is not None and one.place < one.low:
        yield f"{one.place}"


def _wrong_last(book: _Book, one: Operation, floor: int, bound: int | None) -> Iterator[str]:
    found = one.place
    reach = floor if bound is None else min(floor, bound)
    low = 0 if found is None else found + 1
    newer = max(book.shown_between(one.tag, low, reach + 1, one.until), default=None)
    if newer is not None:
        yield f"{found}, passing by {newer}, which was known"
    if found is not None and bound is not None and found > bound:
        yield f"{found}"


def _short(name: str) -> str:
    return name[:60]
