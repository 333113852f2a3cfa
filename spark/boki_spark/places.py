"""From the beginning or end that a user chose to a place in each log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from boki_common.ids import pos_of, term_of
from boki_logbook.scan.facts import NOWHERE, Committed
from boki_spark.stream_rules import EARLIEST, Beginning


async def resolve(
    chosen: Beginning, committed: Committed, seek: Callable[[int], Awaitable[dict[int, tuple[int, int]]]]
) -> dict[int, tuple[int, int]]:
    """The offset that is meant, in a state.

    A seqnum means one place in every log, and no log is further than the state: a log whose terms are all older ends before it.
    """
    if chosen.offset is not None:
        return dict(chosen.offset)
    if chosen.seqnum is not None:
        term = term_of(chosen.seqnum)
        place = (term, pos_of(chosen.seqnum)) if term else NOWHERE
        return {log: min(place, end) for log, end in committed.end.items()}
    if chosen.time_ms is not None:
        return await seek(chosen.time_ms)
    return {} if chosen.word == EARLIEST else dict(committed.end)
