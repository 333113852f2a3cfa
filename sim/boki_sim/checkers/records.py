"""The log of one book as all calls together show it, and what is wrong with it by itself: no order of the calls is looked at.

A record is known from the append that returned its seqnum, and from every read that returned it. So an append with an unknown
outcome is in the log exactly if a read returned it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from boki_sim.checkers.findings import Anomaly, Finding, name_of
from boki_sim.checkers.history import ALL, Operation

_REFUSED = ("conflict", "never")


class Stored(NamedTuple):
    """A record of the log and the append that made it."""

    seqnum: int
    append: Operation


class BookLog:
    """See the module. `stored` by seqnum; `streams` by tag, ascending."""

    def __init__(self, book: str, operations: Sequence[Operation], *, forget_after_s: float = 0.0) -> None:
        """`forget_after_s`: see `check`."""
        self.book = book
        self._forget_after_s = forget_after_s
        self.stored: dict[int, Stored] = {}
        self.streams: dict[str, list[int]] = defaultdict(list)
        self.findings: list[Finding] = []
        self._appends: dict[str, Operation] = {}
        self._place: dict[str, int] = {}
        self._shown: dict[int, str] = {}
        self._trims = [one for one in operations if one.kind == "trim"]
        self._newest: dict[tuple[str, float], float] = {}
        """Answers of `_newest_of`, which each read of a stream asks for again."""
        for operation in operations:
            if operation.kind == "append":
                self._note_append(operation)
        for operation in operations:
            if operation.kind == "append" and operation.outcome == "ok" and operation.seqnum is not None:
                self._note_row(operation.seqnum, operation.data, operation)
        for operation in operations:
            for seqnum, data in operation.rows:
                self._note_row(seqnum, data, operation)
        for seqnum in sorted(self._shown):
            append = self._appends.get(self._shown[seqnum])
            if append is not None and append.outcome not in _REFUSED:
                self.stored[seqnum] = Stored(seqnum, append)
                for tag in dict.fromkeys((ALL, *append.tags)):
                    self.streams[tag].append(seqnum)
        self.findings.extend(self._verdicts(operations))

    def between(self, tag: str, low: int, high: int | None) -> list[int]:
        """Seqnums of a stream in [low, high)."""
        rows = self.streams.get(tag, [])
        return rows[bisect_left(rows, low) : len(rows) if high is None else bisect_left(rows, high)]

    def first_after(self, tag: str, seqnum: int) -> int | None:
        """The first of a stream above a place."""
        rows = self.streams.get(tag, [])
        at = bisect_right(rows, seqnum)
        return rows[at] if at < len(rows) else None

    def _note_append(self, append: Operation) -> None:
        other = self._appends.setdefault(append.data, append)
        if other is not append:
            raise ValueError(
                f"expected each append of a history to name a record of its own, found {append.data!r} twice: "
                f"{name_of(other)}; {name_of(append)}"
            )

    def _note_row(self, seqnum: int, data: str, witness: Operation) -> None:
        append = self._appends.get(data)
        if append is None:
            text = f"nobody appended {data!r}, which {name_of(witness)} shows at {seqnum}"
            self._found("phantom", text, witness)
            return
        if append.outcome in _REFUSED:
            self._found(
                "phantom", f"{name_of(append)} is not in the log, and {name_of(witness)} shows it", append, witness
            )
        shown = self._shown.setdefault(seqnum, data)
        if shown != data:
            other = self._appends[shown]
            text = f"at {seqnum} {name_of(witness)} shows {data!r}, and others saw {shown!r}"
            self._found("reordered", text, witness, other)
            return
        place = self._place.setdefault(data, seqnum)
        if place != seqnum:
            text = f"{name_of(append)} is at {place} and at {seqnum}, which {name_of(witness)} shows"
            self._found("duplicated", text, append, witness)

    def _verdicts(self, operations: Sequence[Operation]) -> Iterator[Finding]:
        """Conditions of what is in the log are decided by places alone; a conflict needs a newer record to exist at all."""
        for seqnum, stored in self.stored.items():
            for tag, expected in stored.append.expect.items():
                newer = self.between(tag, 0 if expected is None else expected + 1, seqnum)
                if newer and not (expected is None and newer[-1] <= self.forgotten(stored.append, tag)):
                    winner = self.stored[newer[-1]].append
                    text = f"{name_of(stored.append)} is in the log, though {tag!r} had {newer[-1]}: {name_of(winner)}"
                    yield Finding("wrong verdict", self.book, text, (stored.append, winner))
        for operation in operations:
            if operation.outcome == "conflict" and not self.losses(operation) and not self._is_excused(operation):
                text = f"{name_of(operation)} was refused, and no record contradicts its condition"
                yield Finding("wrong verdict", self.book, text, (operation,))

    def forgotten(self, append: Operation, tag: str) -> int:
        """The highest seqnum of a stream that may have been forgotten when an append was decided; -1 if none.

        One whose outcome is unknown may have been decided long after its caller gave up.
        """
        until = math.inf if append.end is None or append.outcome == "unknown" else append.end
        named = [
            trim for trim in self._trims if trim.outcome != "never" and trim.tag in (ALL, tag) and trim.start <= until
        ]
        forgotten = any(self.may_forget(trim, tag) for trim in named)
        return max((trim.before - 1 for trim in named), default=-1) if forgotten else -1

    def may_forget(self, trim: Operation, tag: str) -> bool:
        """Whether a trim can have forgotten a stream: it asks for it, and no record that was there is too young."""
        if not trim.forget or trim.outcome == "never":
            return False
        if trim.end is None or trim.outcome == "unknown" or not self._forget_after_s:
            return True
        return trim.end - self._newest_of(tag, trim.start) >= self._forget_after_s

    def _newest_of(self, tag: str, until: float) -> float:
        """Return when the newest append to a stream began that was acknowledged before a time, -inf if there is none."""
        if (tag, until) not in self._newest:
            there = (self.stored[seqnum].append for seqnum in self.streams.get(tag, ()))
            starts = (one.start for one in there if one.outcome == "ok" and one.end is not None and one.end <= until)
            self._newest[tag, until] = max(starts, default=-math.inf)
        return self._newest[tag, until]

    def expected_what_is_forgotten(self, conflict: Operation) -> bool:
        """Whether it may have been refused although nothing newer is there: of a stream that nothing is known of, nobody knows
        what was newest, below the newest record of all streams that the book has forgotten.
        """
        unknown = [
            expected
            for tag, expected in conflict.expect.items()
            if expected is not None and conflict.actual.get(tag) is None
        ]
        if not unknown:
            return False
        forgetful = dict.fromkeys(trim.tag for trim in self._trims if self.may_forget(trim, trim.tag))
        return min(unknown) < max((self.forgotten(conflict, tag) for tag in forgetful), default=-1)

    def _is_excused(self, conflict: Operation) -> bool:
        """Whether the record that a conflict names may have been trimmed before anybody saw it, or was forgotten."""
        return self.expected_what_is_forgotten(conflict) or any(
            trim.outcome != "never" and newest is not None and newest < trim.before
            for newest in conflict.actual.values()
            for trim in self._trims
        )

    def losses(self, conflict: Operation) -> list[int]:
        """The records that can have made a conditional append lose: the first too new one of each stream it names."""
        firsts = (self.first_after(tag, -1 if s is None else s) for tag, s in conflict.expect.items())
        return sorted(first for first in firsts if first is not None)

    def _found(self, anomaly: Anomaly, text: str, *calls: Operation) -> None:
        finding = Finding(anomaly, self.book, text, calls)
        if finding not in self.findings:
            self.findings.append(finding)
