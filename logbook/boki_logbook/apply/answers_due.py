"""Answers to the SDKs of this engine, from the verdict on until the cut is passed; then one push for each of them. Pure.

    decided      an entry of ours was applied: answers, by who sent its runs
    passed_over  an entry of ours was given up: its numbers are gaps, so that they are sent again
    cut_passed   what came so far may be answered: whoever gets the answer can read its records here
    send         one push for each source, of all that one turn applied

Answers to few runs are rows made one by one. Many runs that were all committed are the columns of the batch that brought them,
with seqnums counted up: calling numpy pays from `FEW_ROWS` on. In both cases the order is that of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeAlias

from boki_common.engine.answers import Answers
from boki_common.engine.engine_protocol import ROW_DUPLICATE, Token
from boki_common.records.numpy_pays import FEW_ROWS
from boki_common.records.record_batch import RecordBatch
from boki_logbook.append.shard import OwnEntry
from boki_logbook.ports import AppendSource
from boki_logbook.writers.verdict import Answer, Decision
from boki_logbook.writers.writers import DUPLICATE, GAP, NOBODY

_run_of = attrgetter("run")


_Due: TypeAlias = tuple[AppendSource, RecordBatch, Sequence[Answer] | None, int]
"""For whom; the batch whose runs the answers name; instead of answers None, where all of its records were committed, one after
another; then the seqnum of the first."""


class AnswersDue:
    """See the module."""

    def __init__(self) -> None:
        self.waiting = False
        """Whether anybody is to be answered."""
        self._of_cut: list[_Due] = []
        self._due: list[_Due] = []

    def decided(self, own: OwnEntry, decision: Decision) -> None:
        """The entry was applied."""
        pieces, count = own.pieces, own.batch.run_count
        if count > FEW_ROWS and decision.all_committed(count):
            first_seqnum = decision.first_seqnum
            for piece in pieces:
                self._of_cut.append((piece.source, piece.batch, None, first_seqnum))
                first_seqnum += piece.batch.record_count
            return
        answers = decision.answers
        begin = runs_stop = 0
        for piece in pieces:
            runs_stop += piece.batch.run_count
            if runs_stop == count:
                given = answers[begin:]
            else:
                end = bisect_left(answers, runs_stop, begin, key=_run_of)
                given, begin = answers[begin:end], end
            if given:
                self._of_cut.append((piece.source, own.batch, given, 0))

    def passed_over(self, own: OwnEntry, last: Callable[[int, bytes], int]) -> None:
        """The entry was given up; `last`: the last decided number of a writer in a book."""
        for piece in own.pieces:
            runs = piece.batch.runs
            gaps = [
                Answer(at, run.first, run.count, last(run.book, run.writer), GAP, NOBODY)
                for at, run in enumerate(runs)
                if run.count
            ]
            if gaps:
                self._of_cut.append((piece.source, piece.batch, gaps, 0))

    def cut_passed(self) -> None:
        """All entries of a cut were applied, and its commands."""
        if self._of_cut:
            self._due += self._of_cut
            self._of_cut = []
            self.waiting = True

    def send(self, token: Token, position: int) -> None:
        """Sends what is due; the index has passed `token`, and covers the log up to the seqnum `position`."""
        due, self._due, self.waiting = self._due, [], False
        by_source: dict[AppendSource, Answers] = {}
        for source, batch, answers, first_seqnum in due:
            if source not in by_source:
                by_source[source] = Answers()
            if answers is None:
                by_source[source].add_committed(batch.run_columns, first_seqnum, position)
                continue
            runs = batch.runs
            by_source[source].add(
                [
                    (
                        *((run := runs[at])[0], run[1], first, seqnum, position, count, verdict, actual),
                        ROW_DUPLICATE if actual is DUPLICATE else 0,
                    )
                    for at, first, count, seqnum, verdict, actual in answers
                ]
            )
        for source, rows in by_source.items():
            source.answered(token, rows)
