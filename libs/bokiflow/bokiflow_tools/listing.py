"""Workflows of a group as people look for them: newest first, page by page, some of them.

A group's streams are read backwards, all partitions together, so a page costs a few round trips however many there are. What is looked at
for one page is bounded; the page has the place where it ends, and the next page begins there.

A workflow is listed at the place of its start. Of an old one that is trimmed: then it is at the newest record of it, its end or
its partition's checkpoint.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import boki
from boki_common.errors import Trimmed
from bokiflow import inspection
from bokiflow.flow_events import (
    PICKER,
    AnyFlowEvent,
    Claimed,
    Ended,
    PartitionCheckpoint,
    PartitionClaimed,
    Started,
    Tombed,
)
from bokiflow.history import begun
from bokiflow.instance_state import Held, Status, status_of
from bokilib import tags
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.log import Log
from bokilib.ports import BookPort

MOST: Final = 100_000
"""Records that are looked at for one page."""
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
    """One workflow: the record by which it is listed, how it began, and where it stands. `started` has no `args` if they are not kept."""

    seqnum: int
    time_ms: int
    started: Started
    held: Held

    @property
    def status(self) -> Status:
        """How it stands."""
        return status_of(self.held.ended, self.held.blocked)


class Listing(NamedTuple):
    """A page. `before`: where the next one begins; None: there is none."""

    rows: list[Listed]
    before: int | None


async def listing(log: Log, group: str, wanted: Wanted, *, before: int | None = None, limit: int = 50) -> Listing:
    """The newest workflows of a group that are asked for, of those that began before a place."""
    below = before if before is not None else await log.book.now() + 1
    streams = [one for partition in range(tags.PARTITIONS) for one in _streams(group, wanted, partition)]
    found: list[Listed] = []
    looked = 0
    while looked < MOST:
        count = CHUNK if wanted.statuses or wanted.name else max(1, limit + 1 - len(found))
        records = await newest(log.book, streams, below, count)
        if not records:
            return Listing(found, None)
        below, looked = records[-1].seqnum, looked + len(records)
        for one in await _opened(log, group, wanted, records):
            if wanted.since_ms is not None and one.time_ms < wanted.since_ms:
                return Listing(found, None)  # time in the log does not run backwards
            if not wanted.fits(one):
                continue
            if len(found) >= limit and one.seqnum < found[-1].seqnum:
                return Listing(found, found[-1].seqnum)
            found.append(one)
    return Listing(found, below)


def _streams(group: str, wanted: Wanted, partition: int) -> list[str]:
    """The first of them has the starts."""
    if wanted.attribute is not None:
        return [tags.flow_attribute(partition, *wanted.attribute)]
    return [tags.flow_part(group, partition), tags.flow_done(group, partition)]


class _Mention(NamedTuple):
    """A record has something of a workflow. `start`: where it began."""

    record: boki.Record
    id: str
    start: int
    event: Started | Claimed | Ended | PartitionCheckpoint


async def _opened(log: Log, group: str, wanted: Wanted, records: Sequence[boki.Record]) -> list[Listed]:
    mentions: list[_Mention] = []
    for record in records:
        for event in PICKER.of(record.seqnum, await log.open(record)):
            mentions += _mentions(record, event, group)
    states = await inspection.newest_of(log, [one.id for one in mentions])
    known = [(one, held) for one, held in zip(mentions, states, strict=True) if held is not None]
    of_old = [one for one, _ in known if not isinstance(one.event, Started)]
    kept = await _with_starts(log, group, wanted, of_old)
    found = []
    for one, held in known:
        started = begun(one.event, one.record.time_ms) if isinstance(one.event, Started) else None
        if started is None and (one.id, one.start) not in kept:
            started = await _began(log, one, held)
        if started is not None:
            found.append(Listed(one.record.seqnum, one.record.time_ms, started, held))
    return found


def _mentions(record: boki.Record, event: AnyFlowEvent, group: str) -> list[_Mention]:
    if isinstance(event, Tombed):
        event = event.ended
    if not isinstance(event, Started | Claimed | Ended | PartitionCheckpoint) or event.group != group:
        return []
    if isinstance(event, PartitionCheckpoint):
        return [_Mention(record, id, start, event) for id, start in zip(event.ids, event.starts, strict=False)]
    return [_Mention(record, event.id, record.seqnum if isinstance(event, Started) else event.start, event)]


async def _with_starts(log: Log, group: str, wanted: Wanted, mentions: Sequence[_Mention]) -> set[tuple[str, int]]:
    """Ids and starts of those whose starts are there still: they are listed by these."""
    asked = [(_streams(group, wanted, tags.partition_of(one.id))[0], one) for one in mentions if one.start]
    while asked:
        try:
            records = await log.book.read_prev_many([(stream, one.start) for stream, one in asked])
        except Trimmed as trimmed:
            del asked[trimmed.facts["index"]]
            continue
        pairs = zip(asked, records, strict=True)
        return {(one.id, one.start) for (_, one), found in pairs if found is not None and found.seqnum == one.start}
    return set()


async def _began(log: Log, one: _Mention, held: Held) -> Started | None:
    """How a workflow began whose start is not there; None: a newer record has it."""
    ended = held.ended
    if ended is not None:
        if held.claim != one.record.seqnum:
            return None
        return Started(
            *(one.id, ended.name, ended.digest, None, ended.began_ms),
            group=ended.group,
            parent=ended.parent,
            attributes=ended.attributes,
        )
    if isinstance(one.event, PartitionCheckpoint):
        stream = tags.flow_part(one.event.group, one.event.partition)
        async for item in log.book.read(stream, start=one.record.seqnum + 1):
            if isinstance(item, boki.Record):
                events = PICKER.of(item.seqnum, await log.open(item))
                if any(isinstance(event, PartitionCheckpoint) for event in events):
                    return None
    elif held.claim != one.record.seqnum:
        return None
    began = await inspection.first(log, one.id)
    return None if began is None else began[1]


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
    """Groups of workers that a book has, in order of their names. Nobody keeps a list of them.

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
