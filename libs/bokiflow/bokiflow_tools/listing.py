"""Workflows of a group as people look for them: newest first, page by page, some of them.

A group's streams of starts are read backwards, all partitions together, so a page costs a few round trips however many there are. What
is looked at for one page is bounded; where it ends is said, and the next page begins there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import boki
from boki_common.errors import Trimmed
from bokiflow import inspection
from bokiflow.flow_events import PICKER, PartitionClaimed, Started
from bokiflow.instance_state import Held, Status, status_of
from bokilib import tags
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.log import Log
from bokilib.ports import BookPort

MOST: Final = 100_000
"""Starts that are looked at for one page."""
CHUNK: Final = 256


class Wanted(NamedTuple):
    """Which workflows are asked for; empty or None: whatever it is.

    Attributes:
        attribute: a name and its value. since_ms, until_ms: started at or after, before; by the log's time.
    """

    statuses: frozenset[Status] = frozenset()
    name: str = ""
    attribute: tuple[str, str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def fits(self, one: Listed) -> bool:
        """Whether a workflow is asked for."""
        started = one.started
        return (
            (not self.statuses or one.status in self.statuses)
            and (not self.name or started.name == self.name)
            and (self.attribute is None or started.attributes.get(self.attribute[0]) == self.attribute[1])
            and (self.since_ms is None or one.time_ms >= self.since_ms)
            and (self.until_ms is None or one.time_ms < self.until_ms)
        )


class Listed(NamedTuple):
    """One workflow: the record of its start, and where it stands."""

    seqnum: int
    time_ms: int
    started: Started
    held: Held

    @property
    def status(self) -> Status:
        """How it stands."""
        return status_of(self.held.ended)


class Listing(NamedTuple):
    """A page. `before`: where the next one begins; None: there is none."""

    rows: list[Listed]
    before: int | None


async def listing(log: Log, group: str, wanted: Wanted, *, before: int | None = None, limit: int = 50) -> Listing:
    """The newest workflows of a group that are asked for, of those that began before a place."""
    below = before if before is not None else await log.book.now() + 1
    streams = [_stream(group, wanted, partition) for partition in range(tags.PARTITIONS)]
    found: list[Listed] = []
    looked = 0
    while looked < MOST:
        count = CHUNK if wanted.statuses or wanted.name else max(1, limit + 1 - len(found))
        records = await newest(log.book, streams, below, count)
        if not records:
            return Listing(found, None)
        below, looked = records[-1].seqnum, looked + len(records)
        for one in await _opened(log, group, records):
            if wanted.since_ms is not None and one.time_ms < wanted.since_ms:
                return Listing(found, None)  # time in the log does not run backwards
            if not wanted.fits(one):
                continue
            if len(found) >= limit and one.seqnum < found[-1].seqnum:
                return Listing(found, found[-1].seqnum)
            found.append(one)
    return Listing(found, below)


def _stream(group: str, wanted: Wanted, partition: int) -> str:
    if wanted.attribute is None:
        return tags.flow_part(group, partition)
    return tags.flow_attribute(partition, *wanted.attribute)


async def _opened(log: Log, group: str, records: Sequence[boki.Record]) -> list[Listed]:
    starts: list[tuple[boki.Record, Started]] = []
    for record in records:
        events = PICKER.of(record.seqnum, await log.open(record))
        starts += [(record, event) for event in events if isinstance(event, Started) and event.group == group]
    states = await inspection.newest_of(log, [started.id for _, started in starts])
    pairs = zip(starts, states, strict=True)
    return [Listed(record.seqnum, record.time_ms, one, state) for (record, one), state in pairs if state is not None]


async def newest(book: BookPort, streams: Iterable[str], below: int, count: int) -> list[boki.Record]:
    """The newest so many records below a place that are in any of some streams, newest first."""
    lowest = dict.fromkeys(streams, below)
    found: dict[int, boki.Record] = {}
    while True:
        bar = heapq.nlargest(count, found)[-1] if len(found) >= count else 0
        asked = [(tag, at - 1) for tag, at in lowest.items() if at > max(bar, 1)]
        if not asked:
            return [found[seqnum] for seqnum in heapq.nlargest(count, found)]
        try:
            records = await book.read_prev_many(asked)
        except Trimmed as trimmed:
            del lowest[asked[trimmed.facts["index"]][0]]
            continue
        for (tag, _), record in zip(asked, records, strict=True):
            if record is None:
                del lowest[tag]
            else:
                lowest[tag] = record.seqnum
                found[record.seqnum] = record


async def groups(log: Log, records: int | None = None) -> list[str]:
    """Groups of workers that a book tells of, in order of their names. Nobody keeps a list of them.

    Args:
        records: look at the newest so many only; without it the whole book is read.
    """
    found: set[str] = set()
    if records is None:
        async for item in log.book.read():
            if not isinstance(item, boki.Gap):
                found.update(await _groups_of(log, item))
        return sorted(found)
    at_most: int | None = None
    for _ in range(records):
        try:
            record = await log.book.read_prev(at_most=at_most)
        except Trimmed:
            break
        if record is None:
            break
        at_most = record.seqnum - 1
        found.update(await _groups_of(log, record))
    return sorted(found)


async def _groups_of(log: Log, record: boki.Record) -> list[str]:
    try:
        events = PICKER.of(record.seqnum, await log.open(record))
    except (ForeignRecord, UnknownEvent):
        return []  # a book may have other users
    return [event.group for event in events if isinstance(event, Started | PartitionClaimed)]
