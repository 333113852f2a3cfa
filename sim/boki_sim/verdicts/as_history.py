"""What simulated clients wrote down, as a history that the checkers (and `boki history check`) understand. Pure.

The last client's reading of whole books is part of it: a read of everything, after an append of its own to each book, so that
it must see all that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from boki_sim.checkers import history
from boki_sim.verdicts.verdict_on_history import Entry
from boki_sim.work.operations import APPEND, AT, CONFLICT, FAILED, NEXT, OK, PENDING, READS, TOKEN, TRIM, Operation

_OUTCOMES: Mapping[str, history.Outcome] = {OK: "ok", CONFLICT: "conflict", FAILED: "never"}


def as_history(
    operations: Sequence[Operation], books: Mapping[str, Sequence[Entry]], *, reader: str, start: float, end: float
) -> Iterator[history.Operation]:
    """All calls that a history knows, then one read of each book by `reader`, begun and ended at these times.

    Reads that failed tell nothing.
    """
    for one in operations:
        if one.kind == APPEND:
            yield _append(one)
        elif one.kind == TRIM:
            yield _trim(one)
        elif one.kind == TOKEN:
            yield history.Operation(one.client, "token", "", one.start, one.end, "ok", of=one.of)
        elif one.kind in READS and one.outcome == OK:
            yield _read(one)
    for name in sorted(books):
        rows = tuple((entry.seqnum, name_of(entry.payload)) for entry in books[name])
        yield history.Operation(reader, "read", name, start, end, "ok", rows=rows, consistency="linearizable")


def name_of(payload: bytes) -> str:
    """A record's name: its payload without the filling."""
    return payload.rstrip(b".").decode()


def _append(one: Operation) -> history.Operation:
    return history.Operation(
        client=one.client,
        kind="append",
        book=one.book,
        start=one.start,
        end=None if one.outcome == PENDING else one.end,
        outcome=_OUTCOMES.get(one.outcome, "unknown"),
        data=name_of(one.payload),
        tags=one.tags,
        seqnum=one.seqnum,
        expect={str(tag): seqnum for tag, seqnum in (one.expect or {}).items()},
        actual={str(tag): seqnum for tag, seqnum in (one.actual or {}).items()},
    )


def _read(one: Operation) -> history.Operation:
    """`next` covers from its bound to what it found, `at` one place; `prev` and `tail` from what they found to their bound.

    Who was told that the beginning is trimmed saw nothing at or above the mark.
    """
    found = one.seqnum
    low: int
    high: int | None
    if one.kind == AT:
        low, high = one.bound or 0, (one.bound or 0) + 1
    elif one.kind == NEXT:
        low, high = one.bound or 0, (one.mark or None) if found is None else found + 1
    else:
        low, high = found or 0, None if one.bound is None else one.bound + 1
    return history.Operation(
        client=one.client,
        kind="read",
        book=one.book,
        start=one.start,
        end=one.end,
        outcome="ok",
        tag=one.tags[0] if one.tags else history.ALL,
        low=low,
        high=high,
        trimmed=one.mark,
        consistency=one.consistency,
        rows=() if found is None else ((found, name_of(one.payload)),),
    )


def _trim(one: Operation) -> history.Operation:
    return history.Operation(
        client=one.client,
        kind="trim",
        book=one.book,
        start=one.start,
        end=None if one.outcome == PENDING else one.end,
        outcome=_OUTCOMES.get(one.outcome, "unknown"),
        tag=one.tags[0] if one.tags else history.ALL,
        before=one.bound or 0,
        forget=one.forget,
    )
