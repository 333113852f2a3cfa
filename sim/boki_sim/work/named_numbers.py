"""Numbers of named writers: the calls that sent one number, as one append; and what is wrong with their answers. Pure.

A named writer sends a record under a number until the log says what became of it, and sometimes again after that, perhaps from
another process. The log decides a number once. So all calls of one number are one append of the history: it began with the
first of them and ended with the first answer.

What is demanded of them (DESIGN §6.6, §6.9):
- every answer to a number is the same, whoever asks, however often: one seqnum, or a conflict (a later one may name newer records);
- numbers are decided in their order, so seqnums ascend with them;
- the log knows its writer: who sends the same record again never gets NumberReused, AnswerForgotten, or that lower numbers
  are missing which were answered before;
- but it may forget a writer that was silent for `kept_s`: then it refuses every number but the first. An EXPIRE that an engine
  proposes at the end of that silence is void when a new number is ordered before it, not when an old one is repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple

from msgspec.structs import replace

from boki_sim.checkers.history import Operation
from boki_sim.work.operations import CONFLICT, NEVER, OK, UNKNOWN

_FORGOTTEN: Final = "WriterForgotten"
_NEVER_ANSWERED: Final = ("NumberReused", "AnswerForgotten", "TooManyWriters")
"""Errors that a writer who keeps to the rules does not get within a run."""
_HOLES: Final = "have no holes"
"""The error of a writer whose number is too high."""

Key = tuple[str, str, int]


class Merged(NamedTuple):
    """`operations` with one append for each number; `faults` are sentences."""

    operations: list[Operation]
    faults: list[str]


def merge(operations: Sequence[Operation], *, kept_s: float = inf) -> Merged:
    """See the module. Each merged append stands where the first of its calls stood."""
    calls: dict[Key, list[Operation]] = defaultdict(list)
    for one in operations:
        if one.writer:
            calls[one.book, one.writer, one.number].append(one)
    if not calls:
        return Merged(list(operations), [])
    faults: list[str] = []
    numbers: dict[Key, Operation] = {}
    for key, sent in calls.items():
        numbers[key] = _as_one(sent)
        faults += _answers(key, sent)
    faults += _order(numbers)
    faults += _known(calls, numbers, kept_s)
    merged: list[Operation] = []
    for one in operations:
        if not one.writer:
            merged.append(one)
        elif (first := numbers.pop((one.book, one.writer, one.number), None)) is not None:
            merged.append(first)
    return Merged(merged, faults)


def _as_one(sent: Sequence[Operation]) -> Operation:
    """All calls of a number."""
    answered = [one for one in sent if one.outcome in (OK, CONFLICT)]
    start = min(one.start for one in sent)
    if answered:
        first = min(answered, key=lambda one: one.until)
        return replace(first, start=start)
    outcomes = {one.outcome for one in sent}
    if outcomes == {NEVER}:
        return replace(sent[-1], start=start)
    end = None if any(one.end is None for one in sent) else sent[-1].end
    return replace(sent[-1], start=start, end=end, outcome=UNKNOWN)


def _answers(key: Key, sent: Sequence[Operation]) -> Iterable[str]:
    answers = {(one.outcome, one.seqnum) for one in sent if one.outcome in (OK, CONFLICT)}
    if len(answers) > 1:
        yield f"{_name(key)} was answered differently: {sorted(answers, key=str)}"
    for one in sent:
        if one.error.startswith(_NEVER_ANSWERED):
            yield f"{_name(key)}, sent at {one.start:.4f} s with the record that it always had, got {one.error}"


def _order(numbers: dict[Key, Operation]) -> Iterable[str]:
    """Answers are compared with that of the nearest lower number that has a seqnum."""
    newest: dict[tuple[str, str], Operation] = {}
    for key in sorted(numbers):
        one = numbers[key]
        if one.outcome != OK or one.seqnum is None:
            continue
        before = newest.get(key[:2])
        if before is not None and before.seqnum is not None and one.seqnum <= before.seqnum:
            yield f"{_name(key)} is at {one.seqnum}, number {before.number} before it at {before.seqnum}"
        newest[key[:2]] = one


def _known(calls: dict[Key, list[Operation]], numbers: dict[Key, Operation], kept_s: float) -> Iterable[str]:
    by_writer: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for (book, writer, _), sent in calls.items():
        by_writer[book, writer] += sent
    for key, sent in calls.items():
        book, writer, number = key
        before = numbers.get((book, writer, number - 1))
        decided = number == 1 or (before is not None and before.outcome in (OK, CONFLICT))
        since = -1.0 if before is None else before.until
        for one in sent:
            refused = one.error.startswith(_FORGOTTEN) or (decided and _HOLES in one.error and one.start >= since)
            if refused and not _may_be_forgotten(by_writer[book, writer], one.until, kept_s):
                yield f"{_name(key)}, sent at {one.start:.4f} s, got {one.error}; all before it were answered"
    if kept_s < inf:
        for (book, writer), sent in by_writer.items():
            yield from _after_the_end(f"book {book}: writer {writer}", sent, kept_s)


def _may_be_forgotten(calls: Sequence[Operation], until: float, kept_s: float) -> bool:
    """Whether the writer was silent for so long at some time, and no number was new from then on until now."""
    answered = [one for one in calls if one.outcome in (OK, CONFLICT) and one.until <= until]
    numbers = {one.number for one in answered}
    begun = {number: min(one.start for one in calls if one.number == number) for number in numbers}
    silent_from = max(begun.values(), default=0.0)
    ends = [*(one.until for one in answered), until]
    return any(
        end >= silent_from + kept_s and all(one.start <= end - kept_s or one.until >= end for one in answered)
        for end in ends
    )


def _last_seen(calls: Iterable[Operation], until: float) -> float:
    """The log ordered a number of the writer at this time or after it; 0 if nobody knows of one."""
    return max((one.start for one in calls if one.outcome in (OK, CONFLICT) and one.until <= until), default=0.0)


def _after_the_end(name: str, calls: Sequence[Operation], kept_s: float) -> Iterable[str]:
    """A writer that is forgotten stays so: there is no first number again."""
    answers = [one.until for one in calls if one.error.startswith(_FORGOTTEN) or _HOLES in one.error]
    forgotten = min((end for end in answers if 0 < _last_seen(calls, end) <= end - kept_s), default=inf)
    for one in calls:
        if one.outcome in (OK, CONFLICT) and one.start > forgotten:
            yield f"{name} was forgotten at {forgotten:.4f} s, but number {one.number} is answered at {one.until:.4f} s"


def _name(key: Key) -> str:
    book, writer, number = key
    return f"book {book}: number {number} of writer {writer}"
