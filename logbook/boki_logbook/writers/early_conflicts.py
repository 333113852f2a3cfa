"""Which appended records have lost already, before they are ordered (DESIGN §6.6). Pure.

An expectation that failed stays failed: the newest record of a stream only rises, and a stream that is forgotten leaves a
floor. So an engine whose index sees it fail answers with the Conflict at once, and orders the record *without its payload*: tags
and data are not written, but number and expectations are, because numbers are dense and later ones wait for this one. The
log then comes to the same verdict by itself, on every engine.

Rules:
- Only runs of a session writer that were never sent before: an earlier copy may have won. A named writer's number may have
  been sent by another process, so its runs are always left to the log.
- Only if this engine covers all that the caller's session has seen, and the record that won: a reply does not claim
  rows of half a cut, so neither does a Conflict.
- An expectation of no record at all decides nothing here: it holds again once its stream is forgotten (`state.would_fail`).

It knows no connection; who answers sends the rows after the batch was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from boki_common.engine.answers import AnswerRow
from boki_common.engine.engine_protocol import NEWEST_FORGOTTEN, Token, Verdict, merge_tokens
from boki_common.ids import Position
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RUN_RESENT, RUN_VOID, RecordBatch
from boki_common.records.tag_names import NO_NAMES
from boki_logbook.writers.verdict import by_record
from boki_logbook.writers.writers import Actual

_LEFT_TO_THE_LOG: Final = RUN_NAMED | RUN_RESENT | RUN_VOID


class Conditions(Protocol):
    """What is decided: `state.DecisionState`."""

    def expectations_hold(self, book: int, tags: Sequence[int], expected: Sequence[int]) -> bool:
        """Whether all of these expectations hold now: then none will certainly fail."""

    def would_fail(self, book: int, expectations: Sequence[tuple[int, int]]) -> Actual | None:
        """What a record with these (tag, seqnum) expectations will certainly be answered; None if the log has to decide."""


class Positions(Protocol):
    """What replies about a book show: part of `serving.Serving`."""

    def view_after(self, token: Token, book: int) -> tuple[dict[int, Position], int] | None: ...


class EarlyConflicts(NamedTuple):
    """`rows` may be answered, with `token`, once `batch` is taken in the place of the one that came."""

    token: dict[int, Position]
    rows: list[AnswerRow]
    batch: RecordBatch


def early_conflicts(batch: RecordBatch, token: Token, state: Conditions, positions: Positions) -> EarlyConflicts | None:
    """The certain losers of an uncompressed batch; None when it has none, which is nearly always."""
    expectations = batch.expectations
    rows: list[AnswerRow] = []
    losers: list[int] = []
    seen: dict[int, Position] = {}
    expected = start = 0
    for run in batch.runs:
        book, writer, first, _, count, _, wanted, flags = run
        of_run = expectations.part(expected, expected + wanted)
        view = None
        if wanted and not flags & _LEFT_TO_THE_LOG and not state.expectations_hold(book, of_run.tags, of_run.seqnums):
            view = positions.view_after(token, book)
        if view is not None:
            before, (applied, covered) = len(rows), view
            for record, pairs in by_record(of_run):
                actual = state.would_fail(book, pairs)
                if actual is not None and _is_covered(actual, covered):
                    rows.append(AnswerRow(book, writer, first + record, 0, covered, 1, Verdict.CONFLICT, actual))
                    losers.append(start + record)
            if len(rows) > before:
                merge_tokens(seen, applied)
        expected += wanted
        start += count
    return EarlyConflicts(seen, rows, _without_payload(batch, losers)) if rows else None


def _is_covered(actual: Actual, covered: int) -> bool:
    """Whether a reply covers what the record lost against."""
    return all(newest <= covered or newest == NEWEST_FORGOTTEN for _, newest in actual)


def _without_payload(batch: RecordBatch, records: Sequence[int]) -> RecordBatch:
    """The same batch; these records keep their numbers and expectations, and have neither tags nor data."""
    empty = frozenset(records)
    builder = BatchBuilder()
    crcs = iter(batch.crc_values)
    tag_counts = batch.tag_counts.tolist()
    record = expected = 0
    for run in batch.runs:
        builder.start_run(run.book, run.writer, run.first, run.low, run.flags)
        wanted = dict(by_record(batch.expectations.part(expected, expected + run.expectation_count)))
        expected += run.expectation_count
        for at in range(run.count):
            if record in empty:
                builder.add(b"", 0, NO_NAMES, b"")
            else:
                builder.add(batch.record_tags(record).tobytes(), tag_counts[record], b"", batch.payload(record))
            for tag, seqnum in wanted.get(at, ()):
                builder.expect(tag, seqnum)
            if run.flags & RUN_NAMED:
                builder.checksum(next(crcs))
            record += 1
    return RecordBatch.parse(memoryview(b"".join(builder.finish())), trusted=True)
