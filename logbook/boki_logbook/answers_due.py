"""Answers to the SDKs of this engine, from the verdict on until the cut is passed; then one push for each of them. Pure.

    decided      an entry of ours was applied: answers, by who sent its runs
    passed_over  an entry of ours was given up: its numbers are gaps, so that they are sent again
    cut_passed   what came so far may be told: whoever hears it can read its records here
    tell         one push for each source, of all that one turn applied

Answers to few runs are rows made one by one. Many runs that were all committed are the columns of the batch that brought them,
with seqnums counted up: calling numpy pays from `FEW_RUNS` on. In both cases the order is that of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boki_common.engine_protocol import Answers, Token
from boki_common.record_batch import Run
from boki_logbook.ports import AppendSource
from boki_logbook.shard import OwnEntry
from boki_logbook.verdict import Answer, Decision
from boki_logbook.writers import GAP, NOBODY

FEW_RUNS: Final = 32
"""Answers to more are made by columns; for fewer, calling numpy costs more."""
_run_of = attrgetter("run")


class _Given(NamedTuple):
    """Answers that name their runs by their places in the entry."""

    runs: Sequence[Run]
    answers: Sequence[Answer]


class _Committed(NamedTuple):
    """Instead of answers: the records of all these runs were committed, one after another."""

    runs: NDArray[np.void]
    first_seqnum: int


class AnswersDue:
    """See the module."""

    def __init__(self) -> None:
        self._of_cut: list[tuple[AppendSource, _Given | _Committed]] = []
        self._due: dict[AppendSource, list[_Given | _Committed]] = {}

    def decided(self, own: OwnEntry, decision: Decision, first_seqnum: int) -> None:
        """The entry was applied; its records have the seqnums from `first_seqnum` on."""
        runs, answers = own.batch.runs, decision.answers
        if len(runs) > FEW_RUNS and not decision.losers and len(answers) == len(runs):
            for piece in own.pieces:
                self._of_cut.append((piece.source, _Committed(piece.batch.run_columns, first_seqnum)))
                first_seqnum += piece.batch.record_count
            return
        begin = runs_stop = 0
        for piece in own.pieces:
            runs_stop += len(piece.batch.runs)
            end = bisect_left(answers, runs_stop, begin, key=_run_of)
            if begin < end:
                self._of_cut.append((piece.source, _Given(runs, answers[begin:end])))
            begin = end

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
                self._of_cut.append((piece.source, _Given(runs, gaps)))

    def cut_passed(self) -> None:
        """All entries of a cut were applied, and its commands."""
        for source, given in self._of_cut:
            self._due.setdefault(source, []).append(given)
        self._of_cut.clear()

    def tell(self, token: Token, position: int) -> None:
        """Tells what is due; the index has passed `token`, and covers the log up to the seqnum `position`."""
        due, self._due = self._due, {}
        for source, given in due.items():
            told = Answers()
            for one in given:
                if isinstance(one, _Committed):
                    told.add_committed(one.runs, one.first_seqnum, position)
                    continue
                runs, answers = one
                told.add(
                    [
                        ((run := runs[at])[0], run[1], first, seqnum, position, count, verdict, actual, 0)
                        for at, first, count, seqnum, verdict, actual in answers
                    ]
                )
            source.answered(token, told)

    @property
    def waiting(self) -> bool:
        """Whether anybody is to be told."""
        return bool(self._due)
