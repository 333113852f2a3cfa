"""From what a user says of a beginning or an end to a place in each log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from boki_common.ids import pos_of, term_of
from boki_logbook.scan.facts import NOWHERE, Committed
from boki_spark.stream_rules import EARLIEST, Beginning


async def resolve(
    said: Beginning, committed: Committed, seek: Callable[[int], Awaitable[dict[int, tuple[int, int]]]]
) -> dict[int, tuple[int, int]]:
    """The offset that is meant, in a state.

    A seqnum means one place in every log, and no log is further than the state: a log whose terms are all older ends before it.
    """
    if said.offset is not None:
        return dict(said.offset)
    if said.seqnum is not None:
        term = term_of(said.seqnum)
        place = (term, pos_of(said.seqnum)) if term else NOWHERE
        return {log: min(place, end) for log, end in committed.end.items()}
    if said.time_ms is not None:
        return await seek(said.time_ms)
    return {} if said.word == EARLIEST else dict(committed.end)
