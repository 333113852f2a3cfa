"""What clients were answered beside records, compared with the log as it is in the end. Pure.

- Times: they never decrease along a book, and a record has one, whoever reads it.
- `seek` gave the first place that was ordered at or after a time, as far as its session had to know the log, or one before it
  with nothing but dead records between.
- Aux data is what somebody left beside that very record, before it was read; it may be gone, and never another record's.
- `why` says what there is to say: only of an append that is decided that it waits for nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Final

from boki_sim.checkers.history import Operation
from boki_sim.work.operations import AUX, KEPT, NOTHING, OK, READ, SEEK, WHY

WAITS: Final = frozenset((NOTHING, "connection", "window", "engine", "sequencer", "bookies", "term", "order"))
"""What `boki.Why` documents."""

Times = Mapping[int, int]
"""Seqnum → `time_ms` of every record of a book that there is or was, ascending; 0 where nobody knows."""


def judge_other_calls(
    operations: Sequence[Operation], times: Times, live: Container[int], floor_of: Callable[[Operation], int]
) -> Iterator[str]:
    """What is wrong with the calls on one book, as sentences.

    Args:
        live: seqnums of the records that are there in the end.
        floor_of: up to where a read had to know the log.
    """
    yield from _times(operations, times)
    shown = _ShownRecords(times, live)
    left: dict[int, list[Operation]] = defaultdict(list)
    for one in operations:
        if one.kind == AUX:
            left[one.low].append(one)
    for one in operations:
        if one.outcome != OK:
            continue
        if one.kind == SEEK:
            yield from _seek(one, shown, floor_of(one))
        elif one.kind == WHY and one.answer not in WAITS:
            yield f"{one.client} asked at {one.start:.4f} s what an append waits for, and got: {one.answer}"
        elif one.kind == AUX and one.answer == KEPT and one.low not in times:
            yield f"{one.client} left aux data at {one.start:.4f} s beside {one.low}, which is no record"
        elif one.kind == READ and one.aux:
            yield from _aux(one, left[one.place or 0])


def _times(operations: Sequence[Operation], times: Times) -> Iterator[str]:
    newest = 0
    for seqnum in times:
        if 0 < times[seqnum] < newest:
            yield f"the record at {seqnum} has time {times[seqnum]} ms, one before it {newest}"
        newest = max(newest, times[seqnum])
    for one in operations:
        known = times.get(one.place or 0)
        if one.kind == READ and known and one.time_ms != known:
            yield f"{one.client} read {one.place} at {one.start:.4f} s with time {one.time_ms} ms, others with {known}"


class _ShownRecords:
    """The times of a book, with what shows quickly that a seek is right, as nearly all are. `highest`: of each place, the
    newest time up to it. `lowest`: of each place, the oldest time of a live record from there on."""

    def __init__(self, times: Times, live: Container[int]) -> None:
        self.times = times
        self.live = live
        self.places = list(times)
        self.highest = list(accumulate(times.values(), max))
        known = (times[at] if times[at] > 0 and at in live else inf for at in reversed(self.places))
        self.lowest = list(accumulate(known, min))[::-1]


def _seek(one: Operation, shown: _ShownRecords, floor: int) -> Iterator[str]:
    place = one.low
    at = bisect_left(shown.places, place)
    passes_by = at > 0 and shown.highest[at - 1] >= one.time_ms
    if not passes_by and (at == len(shown.places) or shown.lowest[at] >= one.time_ms):
        return
    times, live = shown.times, shown.live
    what = f"{one.client} sought {one.time_ms} ms ({one.consistency}) at {one.start:.4f} s and got {place}"
    passed = next((seqnum for seqnum in times if seqnum < place and times[seqnum] >= one.time_ms), None)
    if passed is not None:
        yield f"{what}, passing by {passed} of {times[passed]} ms"
    early = next(
        (seqnum for seqnum in times if place <= seqnum <= floor and 0 < times[seqnum] < one.time_ms and seqnum in live),
        None,
    )
    if early is not None:
        yield f"{what}, but {early}, which was known, is of {times[early]} ms"


def _aux(one: Operation, left: Sequence[Operation]) -> Iterator[str]:
    if not any(aux.aux == one.aux and aux.start <= one.until for aux in left):
        yield f"{one.client} read {one.place} at {one.start:.4f} s with aux data that nobody left there: {one.aux[:60]!r}"
