"""Whether the calls on one book can have taken effect one after another, each at an instant between its begin and its end:
linearizability, with sessions for the reads that only promise those.

A log makes this easy where it is hard in general: seqnums give the order of all records that anybody saw, so it needs no
search. What is left are constraints between calls, and a history is right exactly if they contain no cycle:

    a record is before the next one · an append before a read that shows it · a read before the append that it missed
    a call before every call that began after it returned · in a session, before what that session called later
    (but one with an unknown outcome may take effect long after its caller gave up)
    a trim before a read that reported it · a read before a trim of what it shows
    what a session had called before its token was taken over · what the session that took it called after

A cycle is the counter-example, in words. Two things are left open where a history does not show them: which of several trims a
read reported (of those alike the one that began first is taken, of others none), and whether a record that a read missed was
trimmed already or not there yet (nothing is demanded then). Reads with consistency `any` are held to what they show, not to when.
A conflict comes from any engine that knows so much: like a session's read, it may be behind other sessions.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from boki_sim.checkers.constraints import Constraints, Step
from boki_sim.checkers.findings import Anomaly, Finding, name_of
from boki_sim.checkers.history import ALL, Operation
from boki_sim.checkers.records import BookLog

FINDINGS_MOST: Final = 20
"""Contradictions reported of one book."""

_LOG: Final = "is in the log before"
_SHOWS: Final = "is shown by"
_MISSED: Final = "did not see"
_REAL_TIME: Final = "had returned before the begin of"
_SESSION: Final = "had returned, in the same session, before the begin of"
_FUTURE: Final = "returned before the begin of"
_TRIM_SEEN: Final = "was known to"
_TRIM_AFTER: Final = "still shows what was trimmed by"
_LOSES: Final = "made refuse"
_LOSES_TO: Final = "did not report, as newer,"


class _Trimmed:
    """The trims that matter to reads of a stream, as they began; those that are no more than possible too.

    Attributes:
        starts: when each of them began.
        excused: below this a read may have missed every record, because of this trim or one before it.
        done: those that were acknowledged, of this stream or of the whole book.
    """

    def __init__(self, trims: Sequence[Operation], stream: str, reached_by: Callable[[Operation], int]) -> None:
        self.fitting = [trim for trim in trims if trim.outcome != "never" and (not stream or trim.tag in (ALL, stream))]
        self.starts = [trim.start for trim in self.fitting]
        bounds = (reached_by(trim) if stream or trim.tag == ALL else 0 for trim in self.fitting)
        self.excused = list(itertools.accumulate(bounds, max))
        self.done = [trim for trim in trims if trim.outcome == "ok" and trim.tag in (ALL, stream)]


class BookOrder:
    """The constraints of one book."""

    def __init__(self, log: BookLog, operations: Sequence[Operation]) -> None:
        self._log = log
        called = [one for one in operations if one.kind != "append" or one.outcome != "never"]
        self._operations = sorted(called, key=lambda one: one.start)
        self._number = {id(one): number for number, one in enumerate(self._operations)}
        self._record = {seqnum: self._number[id(stored.append)] for seqnum, stored in log.stored.items()}
        self._trims = [one for one in self._operations if one.kind == "trim"]
        self._trimmed: dict[str, _Trimmed] = {}
        """By the stream that a read is of."""
        self._places = sorted(log.stored)
        """Seqnums, and of each place when the last of the records up to it had begun."""
        self._begun = list(itertools.accumulate((log.stored[place].append.start for place in self._places), max))
        self._graph = Constraints(len(self._operations))
        self.findings: list[Finding] = []
        self._hold_to_log()
        self._hold_to_clocks()
        for number, one in enumerate(self._operations):
            if one.kind == "read" and one.outcome == "ok":
                self._read(number, one)
            elif one.outcome == "conflict":
                self._conflict(number, one)

    def check(self) -> Iterator[Finding]:
        """Contradictions, each a shortest one, each without the calls that those before it blame."""
        yield from self.findings
        for _ in range(FINDINGS_MOST):
            steps = self._graph.cycle()
            if not steps:
                return
            yield self._explain(steps)
            self._graph.forget(self._culprit(steps))

    # -- constraints

    def _hold_to_log(self) -> None:
        records = [self._record[seqnum] for seqnum in sorted(self._record)]
        for first, second in itertools.pairwise(records):
            self._graph.before(first, _LOG, second)

    def _hold_to_clocks(self) -> None:
        there = set(self._record.values())
        timed: list[int] = []
        loose: list[int] = []
        sessions: dict[str, list[int]] = defaultdict(list)
        for number, one in enumerate(self._operations):
            if one.kind == "append" and number not in there and one.outcome != "conflict":
                continue  # nobody knows whether it ever happened
            if one.kind == "read" and one.outcome != "ok":
                continue
            if one.kind == "token":
                sessions[one.of].append(number)
                sessions[one.client].append(number)
                continue
            if _is_timed(one):
                timed.append(number)
            else:
                loose.append(number)
            if one.kind != "read" or one.consistency != "any":
                sessions[one.client].append(number)
        returned = [number for number in timed if self._operations[number].outcome != "unknown"]
        self._graph.clock(self._operations, _REAL_TIME, entering=timed, leaving=returned)
        self._graph.clock(self._operations, _FUTURE, entering=timed, leaving=loose)
        for client in sorted(sessions):
            own = sessions[client]
            returned = [number for number in own if self._operations[number].outcome != "unknown"]
            self._graph.clock(self._operations, _SESSION, entering=own, leaving=returned)

    def _read(self, number: int, read: Operation) -> None:
        shown = [seqnum for seqnum, _ in read.rows if seqnum in self._record]
        if shown:
            self._graph.before(self._record[shown[-1]], _SHOWS, number)
        seen = set(shown)
        trimmed = self._trimmed_of(read.tag)
        begun = len(trimmed.starts) if read.end is None else bisect_right(trimmed.starts, read.end)
        excused = trimmed.excused[begun - 1] if begun else 0
        for seqnum in self._log.between(read.tag, max(read.low, read.trimmed, excused), read.high):
            if seqnum not in seen and not self._is_excused(seqnum, read, trimmed.fitting[:begun]):
                self._graph.before(number, _MISSED, self._record[seqnum])
                break
        if read.trimmed > read.low:
            self._answered_with_trim(number, read)
        oldest = min(shown, default=0)
        for trim in trimmed.done if shown else ():
            if oldest < trim.before and any(self._must_take(trim, seqnum) for seqnum in shown):
                self._graph.before(number, _TRIM_AFTER, self._number[id(trim)])

    def _answered_with_trim(self, number: int, read: Operation) -> None:
        """Only trims say that something is trimmed: one that reached so far came before.

        Where nothing was found it may be one of another stream that forgot: marks go with the streams that they are of, so nobody
        knows below what was forgotten. That stream must have been old enough.
        """
        fitting = [
            trim
            for trim in self._trims
            if trim.before >= read.trimmed
            and (trim.tag in (ALL, read.tag) or (not read.rows and self._log.may_forget(trim, trim.tag)))
            and trim.outcome != "never"
        ]
        if not fitting:
            text = f"{name_of(read)} reported that everything below {read.trimmed} is trimmed, and nobody trimmed that"
            self.findings.append(Finding("wrong trim", self._log.book, text, (read,)))
            return
        first = min(fitting, key=lambda one: one.start)
        if read.end is not None and first.start > read.end:
            text = f"{name_of(read)} reported {name_of(first)}, which began later"
            self.findings.append(Finding("wrong trim", self._log.book, text, (read, first)))
            return
        begun = [trim for trim in fitting if read.end is None or trim.start <= read.end]
        if first.outcome == "ok" and len({(trim.tag, trim.before) for trim in begun}) == 1:
            self._graph.before(self._number[id(first)], _TRIM_SEEN, number)

    def _trimmed_of(self, stream: str) -> _Trimmed:
        found = self._trimmed.get(stream)
        if found is None:
            found = self._trimmed[stream] = _Trimmed(self._trims, stream, self._reached_by)
        return found

    def _reached_by(self, trim: Operation) -> int:
        """A trim can have been for every record below: none of them began after the trim had returned."""
        if trim.end is None or trim.outcome == "unknown":
            return trim.before
        at = bisect_right(self._begun, trim.end)
        return min(trim.before, self._places[at]) if at < len(self._places) else trim.before

    def _is_excused(self, seqnum: int, read: Operation, begun: Sequence[Operation]) -> bool:
        """Whether a record that a read did not show may have been trimmed by then; whether it was there is left open.

        Of all records of a book, one is missing when the book was trimmed, or every stream that it is in.
        """
        reached = set()
        for trim in begun:
            if seqnum < trim.before and self._may_reach(trim, seqnum):
                if read.tag or trim.tag == ALL:
                    return True
                reached.add(trim.tag)
        tags = self._log.stored[seqnum].append.tags if reached else ()
        return bool(tags) and reached.issuperset(tags)

    def _may_reach(self, trim: Operation, seqnum: int) -> bool:
        """Whether a trim can have been for a record below its bound: it acts on what was there before it."""
        return trim.end is None or trim.outcome == "unknown" or self._log.stored[seqnum].append.start <= trim.end

    def _must_take(self, trim: Operation, seqnum: int) -> bool:
        """Whether whoever reads its stream after the trim cannot see the record any more."""
        append = self._log.stored[seqnum].append
        return append.end is not None and append.end <= trim.start and seqnum < trim.before

    def _conflict(self, number: int, append: Operation) -> None:
        """At its place in the order some stream that it names had a record too new for it."""
        losses = self._log.losses(append)
        unseen = [one for one in append.actual.values() if one is not None and one not in self._record]
        hidden = self._log.expected_what_is_forgotten(append) or (losses and unseen and min(unseen) < losses[0])
        if losses and not hidden:
            self._graph.before(self._record[losses[0]], _LOSES, number)
        for tag, newest in append.actual.items():
            if newest is not None and newest in self._record:
                self._graph.before(self._record[newest], _LOSES, number)
            following = self._log.first_after(
                tag, max(-1 if newest is None else newest, self._log.forgotten(append, tag))
            )
            if following is not None:
                self._graph.before(number, _LOSES_TO, self._record[following])

    # -- words

    def _explain(self, steps: list[Step]) -> Finding:
        calls = [self._operations[step.before] for step in steps]
        lines = [
            f"{name_of(self._operations[s.before])} {s.reason} {name_of(self._operations[s.after])}" for s in steps
        ]
        return Finding(self._anomaly(steps), self._log.book, "; ".join(lines), tuple(calls))

    def _culprit(self, steps: list[Step]) -> int:
        reads = [step.before for step in steps if self._operations[step.before].kind == "read"]
        return reads[0] if reads else steps[0].before

    def _anomaly(self, steps: list[Step]) -> Anomaly:
        reasons = {step.reason for step in steps}
        kinds = {self._operations[step.before].kind for step in steps}
        if reasons & {_TRIM_SEEN, _TRIM_AFTER}:
            return "wrong trim"
        missed = [step for step in steps if step.reason == _MISSED]
        if missed:
            if self._is_lost(missed[0].after):
                return "lost"
            readers = [self._operations[step.before] for step in steps if self._operations[step.before].kind == "read"]
            return "non-monotonic" if _SESSION in reasons and len(readers) > 1 else "stale"
        if reasons & {_LOSES, _LOSES_TO}:
            return "wrong verdict"
        if _FUTURE in reasons or (kinds == {"append", "read"} and _SHOWS in reasons):
            return "phantom"
        return "reordered" if kinds == {"append"} else "impossible order"

    def _is_lost(self, record: int) -> bool:
        """Acknowledged, and the newest read that should show it does not."""
        append = self._operations[record]
        seqnum = append.seqnum
        if append.outcome != "ok" or seqnum is None:
            return False
        covering = [
            one
            for one in self._operations
            if one.kind == "read"
            and one.outcome == "ok"
            and one.low <= seqnum
            and (one.high is None or seqnum < one.high)
            and (one.tag == ALL or one.tag in append.tags)
        ]
        newest = max(covering, key=lambda one: one.start)
        return seqnum not in {row for row, _ in newest.rows}


def _is_timed(one: Operation) -> bool:
    """Whether a call takes effect while it runs; other reads may show what was so before."""
    if one.kind == "read":
        return one.consistency == "linearizable"
    return one.outcome != "conflict" or all(expected is None for expected in one.expect.values())
