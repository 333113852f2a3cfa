"""Rows about logs: `dataset=segments` has one for each term, `dataset=metalog` one for each ordered entry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from boki_logbook.scan.facts import Committed
from boki_logbook.scan.partitions import Partition

SEGMENTS_SCHEMA: Final = (
    "term int, log int, slots array<array<int>>, end_pos bigint, ended boolean, committed bigint, live bigint, last_time timestamp, "
    "gone boolean, metalog_ledger bigint"
)
METALOG_SCHEMA: Final = ", ".join(
    (
        "term int, log int, first_pos bigint, stop_pos bigint",
        "shard bigint, ledger bigint, entry bigint, time timestamp, given_up boolean",
    )
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def segment_rows(committed: Committed) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each term that a state knows, ascending."""
    for one in committed.terms:
        yield (
            one.term,
            one.log,
            [list(pair) for pair in one.slots],
            one.end_pos,
            one.ended,
            one.committed,
            one.live,
            _time(one.last_time_ms) if one.last_time_ms else None,
            one.gone,
            one.metalog_ledger if one.metalog_ledger >= 0 else None,
        )


def metalog_rows(partition: Partition) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each entry of a partition, in the order of its log."""
    entries = partition.entries()
    columns = zip(*(column.tolist() for column in entries), strict=True)
    for first, stop, shard, entry, ledger, time_ms, given_up in columns:
        yield partition.term, partition.log, first, stop, shard, ledger, entry, _time(time_ms), given_up
