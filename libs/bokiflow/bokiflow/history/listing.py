"""Pages of the workflows of a group, the newest first, filtered.

The streams of a group are read backwards, all partitions together, so that a page costs a few round trips however many workflows there
are. The number of records read for one page is bounded; a page names the place where it ends, and the next page begins there.

A workflow is listed at the place of its start. If the start is trimmed, the workflow is listed at its newest record: its end or the
checkpoint of its partition.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import boki
from boki_common.errors import InvalidArgument, Trimmed
from bokiflow.history import inspection
from bokiflow.history.inspection import Known
from bokiflow.history.instance_state import InstanceState, Status, status_of
from bokiflow.model.delivery_order import begun, begun_before, start_ms
from bokiflow.model.flow_events import (
    PICKER,
    AnyFlowEvent,
    Claimed,
    Ended,
    PartitionCheckpoint,
    PartitionClaimed,
    Started,
    Tombed,
)
from bokilib.append.log import Log
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.ports import BookPort
from bokilib.records import tags

MOST: Final = 100_000
"""Records read for one page, at most."""
CHUNK: Final = 256
PAGE: Final = 100
"""Workflows of a list whose facts are read at once."""
UNFINISHED: Final[frozenset[Status]] = frozenset({"running", "blocked"})
AT_DIGITS: Final = 9


class Wanted(NamedTuple):
    """The filters of a listing; an empty or None filter passes every workflow.

    Attributes:
        statuses: the statuses to list.
        name: the name of the function.
        attribute: the name and the value of an attribute.
        since_ms: the earliest start, by the log's time.
        until_ms: the end of the range of starts, which is not in it, by the log's time.
    """

    statuses: frozenset[Status] = frozenset()
    name: str = ""
    attribute: tuple[str, str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def fits(self, one: Listed) -> bool:
        """Return whether a workflow passes all filters."""
        started = one.started
        return (
            (not self.statuses or one.status in self.statuses)
            and (not self.name or started.name == self.name)
            and (self.attribute is None or started.attributes.get(self.attribute[0]) == self.attribute[1])
            and (self.since_ms is None or start_ms(started) >= self.since_ms)
            and (self.until_ms is None or start_ms(started) < self.until_ms)
        )


class Listed(NamedTuple):
    """A workflow of a listing.

    Attributes:
        seqnum: the record at which it is listed.
        time_ms: the time of that record.
        started: its start; `args` is None if the arguments are not kept.
        held: the newest state of its stream.
        at: its index among the workflows that this record mentions.
    """

    seqnum: int
    time_ms: int
    started: Started
    held: InstanceState
    at: int = 0

    @property
    def status(self) -> Status:
        return status_of(self.held.ended, self.held.blocked)


class Before(NamedTuple):
    """The place where a page begins: all records older than `seqnum` and, of that record, the workflows with an index below `at`.

    None as `at`: the page has no workflow of that record.
    """

    seqnum: int
    at: int | None = None

    def __str__(self) -> str:
        return str(self.seqnum) if self.at is None else f"{self.seqnum}:{self.at}"

    @property
    def plain(self) -> int | str:
        """The place for JSON: a number, or a text where the workflows of a record are on two pages."""
        return self.seqnum if self.at is None else str(self)


def parse_before(text: str) -> Before:
    """Parse the text of a place, as `str` of it writes it.

    Raises:
        InvalidArgument: the text names no place.
    """
    seqnum, colon, at = text.partition(":")
    digits = seqnum.isascii() and seqnum.isdigit() and (not colon or (at.isascii() and at.isdigit()))
    if not digits or not 0 < int(seqnum) < 2**63 or len(at) > AT_DIGITS:
        raise InvalidArgument(f"expected a place such as 90455 or 90455:2, found {text!r:.80}", found=text[:80])
    return Before(int(seqnum), int(at) if colon else None)


class Listing(NamedTuple):
    """A page of workflows. `before` is where the next page begins, or None after the last page."""

    rows: list[Listed]
    before: Before | None


async def listing(log: Log, group: str, wanted: Wanted, *, before: Before | None = None, limit: int = 50) -> Listing:
    """Read one page of the workflows of a group.

    Args:
        log: the log of the book.
        group: the app.
        wanted: the filters.
        before: where the page begins; None begins with the newest workflow.
        limit: workflows on the page, at most.

    Returns:
        The workflows, newest first, and where the next page begins. The page may be shorter than `limit` though there are more, where
        `MOST` records were read.
    """
    below, shown = await log.book.now() + 1, 0
    if before is not None:
        below, shown = (before.seqnum + (before.at is not None), before.at or 0)
    first = below - 1 if before is not None and before.at is not None else 0
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
            if not wanted.fits(one) or (one.seqnum == first and one.at >= shown):
                continue
            if len(found) >= limit:
                last = found[-1]
                return Listing(found, Before(last.seqnum, last.at if one.seqnum == last.seqnum else None))
            found.append(one)
    return Listing(found, Before(below))


class WorkflowPage(NamedTuple):
    """A page of workflows as people see them.

    Attributes:
        workflows: the workflows, newest first.
        before: the place where the next page begins; "" after the last page.
    """

    workflows: list[Known]
    before: str


async def known_page(log: Log, group: str, wanted: Wanted, *, before: Before | None, limit: int) -> WorkflowPage:
    """Read one page of the workflows of a group, as people see them.

    Args:
        log: the log of the book.
        group: the app.
        wanted: the filters.
        before: where the page begins; None begins with the newest workflow.
        limit: workflows on the page, at most.
    """
    # Another process, with an engine that is ahead, may have read the page before.
    await log.book.now(consistency="linearizable")
    page = await listing(log, group, wanted, before=before, limit=limit)
    found: list[Known] = []
    for first in range(0, len(page.rows), PAGE):
        found += await _known(log, page.rows[first : first + PAGE])
    return WorkflowPage(found, "" if page.before is None else str(page.before))


async def _known(log: Log, rows: Sequence[Listed]) -> list[Known]:
    """Read what people see of some workflows, all at once."""
    return await asyncio.gather(*(inspection.known_of(log, row.started, row.held) for row in rows))


async def known_workflows(
    log: Log, group: str, wanted: Wanted, *, limit: int | None = None
) -> AsyncGenerator[Known, None]:
    """Yield the workflows of a group, newest first, each as people see it.

    Args:
        log: the log of the book.
        group: the app.
        wanted: the filters.
        limit: workflows, at most; None yields all.
    """
    await log.book.now(consistency="linearizable")
    before, left = None, limit
    while left is None or left > 0:
        page = await listing(log, group, wanted, before=before, limit=PAGE if left is None else min(left, PAGE))
        for one in await _known(log, page.rows):
            yield one
        before, left = page.before, None if left is None else left - len(page.rows)
        if before is None:
            return


def newest_of(pages: Mapping[str, Listing], limit: int) -> tuple[list[tuple[str, Listed]], Before | None]:
    """Merge pages of several groups into one.

    Returns:
        The newest `limit` workflows, each with its group, and where the next page of all of these groups begins.
    """
    rows = [(group, one) for group, page in pages.items() for one in page.rows]
    rows.sort(key=lambda row: (-row[1].seqnum, -row[1].at))
    ends = [page.before for page in pages.values() if page.before is not None]
    if len(rows) <= limit:
        return rows, max(ends, key=lambda end: end.seqnum, default=None)
    last, following = rows[limit - 1][1], rows[limit][1]
    return rows[:limit], Before(last.seqnum, last.at if following.seqnum == last.seqnum else None)


def _streams(group: str, wanted: Wanted, partition: int) -> list[str]:
    """Return the streams that mention the wanted workflows of a partition; the first of them has the starts.

    Workflows that may still run are all in the first stream, which has a day of starts; the week of ends is not read for them.
    """
    if wanted.attribute is not None:
        return [tags.flow_attribute(partition, *wanted.attribute)]
    if wanted.statuses and wanted.statuses <= UNFINISHED:
        return [tags.flow_part(group, partition)]
    return [tags.flow_part(group, partition), tags.flow_done(group, partition)]


class _Mention(NamedTuple):
    """The mention of a workflow in a record.

    Attributes:
        record: the record.
        at: the index among the workflows that the record mentions.
        id: the workflow.
        start: the seqnum of the workflow's start.
        event: the event that mentions it.
    """

    record: boki.Record
    at: int
    id: str
    start: int
    event: Started | Claimed | Ended | PartitionCheckpoint


async def _opened(log: Log, group: str, wanted: Wanted, records: Sequence[boki.Record]) -> list[Listed]:
    mentions: list[_Mention] = []
    for record in records:
        at = 0
        for event in PICKER.of(record.seqnum, await log.open(record)):
            several = _mentions(record, event, at)
            at += len(several)
            mentions += [one for one in several if one.event.group == group]
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
            found.append(Listed(one.record.seqnum, one.record.time_ms, started, held, one.at))
    return sorted(found, key=lambda one: (-one.seqnum, -one.at))


def _mentions(record: boki.Record, event: AnyFlowEvent, at: int) -> list[_Mention]:
    if isinstance(event, Tombed):
        event = event.ended
    if not isinstance(event, Started | Claimed | Ended | PartitionCheckpoint):
        return []
    if isinstance(event, PartitionCheckpoint):
        pairs = enumerate(zip(event.ids, event.starts, strict=False), at)
        return [_Mention(record, number, id, start, event) for number, (id, start) in pairs]
    return [_Mention(record, at, event.id, record.seqnum if isinstance(event, Started) else event.start, event)]


async def _with_starts(log: Log, group: str, wanted: Wanted, mentions: Sequence[_Mention]) -> set[tuple[str, int]]:
    """Return the ids and starts of workflows whose start is not trimmed: these are listed at their start."""
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


async def _began(log: Log, one: _Mention, held: InstanceState) -> Started | None:
    """Return the start of a workflow whose start record is trimmed; None if a newer record mentions the workflow and lists it."""
    ended = held.ended
    if ended is not None:
        if held.claim != one.record.seqnum:
            return None
        return begun_before(ended)
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
    """Read the newest `count` records below a place that are in any of several streams, newest first."""
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
    """Read the names of the groups of a book, sorted. The log has no list of them, so records are read.

    Args:
        log: the log of the book.
        records: the number of newest records to read; None reads the whole book.
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


async def groups_named(log: Log, group: str | None) -> list[str]:
    """Return all groups of a book or, if a group is named, that one if the book has it."""
    if group is None:
        return await groups(log)
    partitions = range(tags.PARTITIONS)
    streams = [tags.member(group), *(tags.flow_partition_owner(group, one) for one in partitions)]
    streams += [stream(group, one) for one in partitions for stream in (tags.flow_part, tags.flow_done)]
    return [group] if await newest(log.book, streams, await log.book.now() + 1, 1) else []


async def _groups_of(log: Log, record: boki.Record) -> list[str]:
    try:
        events = PICKER.of(record.seqnum, await log.open(record))
    except (ForeignRecord, UnknownEvent):
        return []  # a book may have other users
    return [event.group for event in events if isinstance(event, Started | PartitionClaimed)]
