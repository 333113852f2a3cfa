"""What a row of ANSWERS means for the numbers it is about, and the errors that say it to callers. Pure.

Rows are read in one way, whoever appends: they change the numbers, decide what is pending, and say what there is to do about a
number that the log refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from boki._numbers import Numbers
from boki_common.engine.answers import AnswerRow
from boki_common.engine.engine_protocol import NEWEST_FORGOTTEN, ROW_DUPLICATE, Token, Verdict
from boki_common.errors import (
    AnswerForgotten,
    BokiError,
    Conflict,
    LogBookError,
    NumberReused,
    OutcomeUnknown,
    ProtocolError,
    WriterForgotten,
)

_COMMITTED: Final = int(Verdict.COMMITTED)
"""A plain int: comparing enum members costs more."""


class Stalled(NamedTuple):
    """The log lacks numbers: all from there on is sent again, after a back-off. `gaps`: refusals in a row before this one."""

    gaps: int


class Forgotten(NamedTuple):
    """The log knows the writer no more. `floor`: another one is to be born later; -1: any time will do."""

    floor: int = -1


Refusal: TypeAlias = Stalled | Forgotten


def answered(numbers: Numbers, row: AnswerRow, token: Token, now: float) -> Refusal | None:
    """Applies one row. Returns what the log refused. Raises ProtocolError when it cannot be about these numbers."""
    _, _, first, first_seqnum, position, count, verdict, _, flags = row
    if verdict == _COMMITTED:
        position = max(position, first_seqnum + count - 1)
    numbers.saw(token, position)
    before, refusal = numbers.oldest, None
    if verdict == _COMMITTED:
        if flags & ROW_DUPLICATE:
            numbers.was_there(first, count, first_seqnum)
        numbers.committed(first, count, first_seqnum)
    elif verdict == Verdict.CONFLICT:
        numbers.failed(first, count, conflict_of(numbers, row), ordered=False)
    elif verdict == Verdict.GAP:
        refusal = _gap(numbers, first_seqnum)
    elif verdict == Verdict.TOO_OLD:
        refusal = Forgotten(first_seqnum)
    else:
        numbers.failed(first, count, _failure(numbers, row), ordered=True)
    if numbers.oldest is not before:
        numbers.progressed(now)
    return refusal


def asked(numbers: Numbers, row: AnswerRow, token: Token, now: float) -> Refusal | None:
    """As `answered`, of rows that may be about more than what is asked for, or about the holes before it."""
    if row.verdict == Verdict.TOO_OLD and row.first < numbers.low:
        return Forgotten(row.first_seqnum)
    first, end = max(row.first, numbers.low), min(row.first + row.count, numbers.next_number)
    if first >= end:
        return None
    seqnum = row.first_seqnum + (first - row.first if row.verdict == Verdict.COMMITTED else 0)
    return answered(numbers, row._replace(first=first, count=end - first, first_seqnum=seqnum), token, now)


def _gap(numbers: Numbers, last: int) -> Refusal | None:
    if numbers.stalled:
        return None  # everything from there on will be sent again anyway
    if numbers.gap(last):
        return Stalled(numbers.stall())
    return Forgotten()


def _failure(numbers: Numbers, row: AnswerRow) -> BokiError:
    number, writer = row.first, row.writer
    if row.verdict == Verdict.NEVER:
        return LogBookError(f"append {number} was voided: it is not in the log and never will be", never=True)
    if row.verdict == Verdict.REUSED:
        return NumberReused(
            f"number {number} of this writer is another record already: nothing was appended; number on from "
            "`writer.last`",
            book=numbers.book,
            writer=writer,
            number=number,
        )
    if row.verdict == Verdict.FORGOTTEN:
        return AnswerForgotten(
            f"the log has decided append {number}, but keeps its answer no longer: read the book to know",
            book=numbers.book,
            writer=writer,
            number=number,
        )
    raise ProtocolError(f"expected a verdict from 0 to {max(Verdict):d}, found {row.verdict}", found=row.verdict)


def conflict_of(numbers: Numbers, row: AnswerRow) -> Conflict:
    """The error of an append whose expectation does not hold."""
    item = numbers.find(row.first)
    keys = {} if item is None else item.expectations.keys
    known = [(keys.get(tag, tag), newest) for tag, newest in row.actual]
    forgotten = [tag for tag, newest in known if newest == NEWEST_FORGOTTEN]
    actual = {tag: None if newest == NEWEST_FORGOTTEN else newest or None for tag, newest in known}
    found = ", ".join(f"{tag!r}: {newest}" for tag, newest in actual.items())
    gone = f" The log has forgotten what was newest of {forgotten}." if forgotten else ""
    return Conflict(
        f"an expectation does not hold, the record joined no stream; newest now: {{{found}}}.{gone} "
        "Read up to `position` to see what came first",
        actual=actual,
        position=numbers.seen,
        forgotten=forgotten,
    )


def unknown(reason: str, number: int, writer: bytes, book: int) -> OutcomeUnknown:
    """The error of an append that was sent and has no verdict."""
    return OutcomeUnknown(
        f"{reason}: append {number} may or may not be in the log; read the book to know",
        writer=writer,
        number=number,
        book=book,
    )


def forgotten_of(number: int, writer: bytes) -> WriterForgotten:
    """The error of an append that was sent more than once by a writer that the log has forgotten."""
    return WriterForgotten(
        f"the log forgot the writer of append {number}, which was sent more than once: it may or may not be in the "
        "log; read the book to know",
        writer=writer,
        number=number,
    )
