"""Compares what clients were told with the log as it is in the end. Pure, and written without any code of the log.

What it demands, per book (DESIGN §11.5 and §11.6):
- an append that was acknowledged is there, once, where it was said to be, with its tags; what was refused is not there;
- nothing is there that nobody appended; seqnums ascend;
- an append that began after another was acknowledged comes after it;
- a condition held at the record's own place in the log, and did not where it was refused;
- a read gave the right record of the final log, and never less than its session knew before.

It is quick and local: one violation shows which call is wrong. Linearizability as a whole is the checkers' business.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from boki_sim.workload import CONFLICT, FAILED, OK, Operation


class Entry(NamedTuple):
    """A record of the final log."""

    seqnum: int
    payload: bytes
    tags: tuple[str, ...]


class _Book:
    """The final log of a book, by stream ("" is all records)."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.by_seqnum = {entry.seqnum: entry for entry in entries}
        self.streams: dict[str, list[int]] = defaultdict(list)
        for entry in entries:
            for tag in ("", *entry.tags):
                self.streams[tag].append(entry.seqnum)

    def between(self, tag: str, low: int, high: int) -> list[int]:
        """Seqnums of a stream in [low, high)."""
        rows = self.streams.get(tag, [])
        return rows[bisect_left(rows, low) : bisect_left(rows, high)]


def judge(operations: Sequence[Operation], books: dict[str, list[Entry]]) -> Iterator[str]:
    """What is wrong, as sentences."""
    by_book: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_book[operation.book].append(operation)
    for name in sorted(by_book.keys() | books.keys()):
        book = _Book(books.get(name, []))
        ours = by_book[name]
        appends = [one for one in ours if one.kind == "append"]
        yield from (f"book {name}: {text}" for text in _entries(book, appends))
        yield from (f"book {name}: {text}" for text in _real_time(appends))
        yield from (f"book {name}: {text}" for text in _conditions(book, appends))
        yield from (f"book {name}: {text}" for text in _reads(book, ours))


def _entries(book: _Book, appends: Sequence[Operation]) -> Iterator[str]:
    submitted = {one.payload: one for one in appends}
    met: dict[bytes, int] = {}
    last = -1
    for entry in book.entries:
        if entry.seqnum <= last:
            yield f"seqnum {entry.seqnum} comes after {last}"
        last = entry.seqnum
        if entry.payload in met:
            yield f"duplicate: {_short(entry.payload)} is at {met[entry.payload]} and at {entry.seqnum}"
        met[entry.payload] = entry.seqnum
        origin = submitted.get(entry.payload)
        if origin is None:
            yield f"phantom: nobody appended {_short(entry.payload)} at {entry.seqnum}"
        elif sorted(origin.tags) != sorted(entry.tags):
            yield f"{_short(entry.payload)} has tags {entry.tags}, appended with {origin.tags}"
    for one in appends:
        found = met.get(one.payload)
        if one.outcome == OK and found != one.seqnum:
            yield f"lost: {_short(one.payload)} was acknowledged at {one.seqnum}, and is at {found}"
        if one.outcome in (CONFLICT, FAILED) and found is not None:
            yield f"{_short(one.payload)} was refused ({one.error}), and is at {found}"


def _real_time(appends: Sequence[Operation]) -> Iterator[str]:
    """Whoever began after an acknowledgement comes later in the log."""
    acked = sorted((one for one in appends if one.outcome == OK and one.seqnum is not None), key=lambda one: one.end)
    newest: Operation | None = None
    at = 0
    for one in sorted(acked, key=lambda one: one.start):
        while at < len(acked) and acked[at].end < one.start:
            if newest is None or (acked[at].seqnum or 0) > (newest.seqnum or 0):
                newest = acked[at]
            at += 1
        if newest is not None and (one.seqnum or 0) < (newest.seqnum or 0):
            yield (
                f"reordered: {_short(one.payload)} began at {one.start:.4f} s and is at {one.seqnum}, before "
                f"{_short(newest.payload)}, acknowledged at {newest.end:.4f} s, which is at {newest.seqnum}"
            )


def _conditions(book: _Book, appends: Sequence[Operation]) -> Iterator[str]:
    for one in appends:
        if one.expect is None or one.seqnum is None:
            continue
        for tag, expected in one.expect.items():
            newer = book.between(str(tag), 0 if expected is None else expected + 1, one.seqnum)
            if newer:
                yield f"{_short(one.payload)} at {one.seqnum} expected {tag} to end at {expected}, but it had {newer[-1]}"


def _reads(book: _Book, operations: Sequence[Operation]) -> Iterator[str]:
    known: dict[str, list[tuple[float, int]]] = defaultdict(list)
    """Client → (time, highest seqnum it knew from then on), ascending."""
    finished = sorted(
        (one for one in operations if one.outcome == OK and one.seqnum is not None), key=lambda one: one.end
    )
    for one in finished:
        seen = known[one.client]
        highest = max(one.seqnum or 0, seen[-1][1] if seen else 0)
        seen.append((one.end, highest))
    for one in operations:
        if one.kind == "append" or one.outcome != OK:
            continue
        seen = known[one.client]
        before = bisect_left(seen, (one.start, 0)) - 1
        floor = seen[before][1] if before >= 0 else 0
        yield from _read(book, one, floor)


def _read(book: _Book, one: Operation, floor: int) -> Iterator[str]:
    """`floor`: what the session knew when the read began: everything up to there it must see."""
    tag = one.tags[0] if one.tags else ""
    what = f"{one.client} read {one.kind} of {tag or 'all'} from {one.bound} at {one.start:.4f} s"
    if one.seqnum is not None:
        entry = book.by_seqnum.get(one.seqnum)
        if entry is None or entry.payload != one.payload or (tag and tag not in entry.tags):
            yield f"{what} and got {one.seqnum} {_short(one.payload)}, which is not in the log"
            return
    if one.kind == "next":
        low = one.bound or 0
        missed = book.between(tag, low, one.seqnum if one.seqnum is not None else floor + 1)
        if missed and (one.seqnum is not None or missed[0] <= floor):
            yield f"{what} and got {one.seqnum}, passing by {missed[0]}"
        if one.seqnum is not None and one.seqnum < low:
            yield f"{what} and got {one.seqnum}"
        return
    rows = book.streams.get(tag, [])
    reach = floor if one.bound is None else min(floor, one.bound)
    least = rows[bisect_right(rows, reach) - 1] if bisect_right(rows, reach) else None
    if least is not None and (one.seqnum is None or one.seqnum < least):
        yield f"{what} and got {one.seqnum}, its session knew of {least}"
    if one.seqnum is not None and one.bound is not None:
        if one.seqnum > one.bound:
            yield f"{what} and got {one.seqnum}"
        newer = book.between(tag, one.seqnum + 1, min(floor, one.bound) + 1)
        if newer:
            yield f"{what} and got {one.seqnum}, passing by {newer[-1]}"


def _short(payload: bytes) -> str:
    return payload[:40].rstrip(b".").decode(errors="replace")
