"""Rewritten messages (`old_rules`): finding the newest set of a shard, and reading it.

A set may be trimmed while it is read, once a newer one is complete. A reader begins again with the newest set, behind
the last message that it read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import NamedTuple

import boki
from boki_common.errors import BokiError
from bokilib.append.log import Log
from bokilib.records import tags
from bokiqueue.model.events import PICKER, START, Id, Old, for_all, items_of, shard_id
from bokiqueue.model.old_rules import WaitingMessage


class MessageSet(NamedTuple):
    """A complete set of rewritten messages.

    Attributes:
        first: the seqnum of its first part.
        last: the seqnum of its last part.
        end: the newest record of the stream, of any set.
    """

    covers: int
    first: int
    last: int
    time_ms: int
    end: int


NONE = MessageSet(0, 0, 0, 0, 0)


async def newest(log: Log, queue: str, shard: int, at_most: int) -> MessageSet:
    """Return the newest complete set; its `covers` is 0 if there is none."""
    tag, about, place, end = tags.queue_old(queue, shard), shard_id(queue, shard), at_most, 0
    while place > 0:
        try:
            record = await log.book.read_prev(tag, at_most=place)
        except boki.Trimmed:
            break
        if record is None:
            break
        end = end or record.seqnum
        place = record.seqnum - 1
        for event in PICKER.of(record.seqnum, await log.open(record), about=about):
            if isinstance(event, Old):
                if event.last:
                    return MessageSet(event.covers, event.first or record.seqnum, record.seqnum, record.time_ms, end)
                place = min(place, (event.first or record.seqnum) - 1)  # its carrier did not finish it
    return NONE._replace(end=end)


async def messages(log: Log, queue: str, shard: int, found: MessageSet, after: Id) -> AsyncIterator[WaitingMessage]:
    """Yield the messages of a set behind `after`, in order.

    Raises:
        Trimmed: there is a newer set.
        Lost: records are lost.
    """
    if not found.covers:
        return
    tag, about = tags.queue_old(queue, shard), shard_id(queue, shard)
    async for read in log.between(tag, found.first, found.last):
        for event in PICKER.of(read.record.seqnum, read.envelope, about=about):
            if isinstance(event, Old) and event.covers == found.covers:
                for seqnum, number, pushed_ms, item in event.items:
                    if Id(seqnum, number) > after:
                        yield WaitingMessage(Id(seqnum, number), pushed_ms, for_all(item))


async def openable(
    log: Log,
    queue: str,
    shard: int,
    covers: int,
    last: int,
    includes: Callable[[int], bool],
    dropped: Collection[int] = (),
) -> int:
    """Return the seqnum above `covers` up to which messages can be opened, or are dropped, and are old enough.

    Args:
        goes_on: returns True for the time of a record that may be included.

    Raises:
        BokiError: a retryable error of reading.
        Lost: records are lost.
    """
    async for item in _pushed(log, queue, shard, covers + 1, last):
        if not includes(item.time_ms):
            break
        try:
            PICKER.of(item.seqnum, await log.open(item), about=shard_id(queue, shard))
        except BokiError as error:
            if error.retryable:
                raise
            if item.seqnum not in dropped:
                break
        covers = item.seqnum
    return covers


async def all_of(
    log: Log, queue: str, shard: int, found: MessageSet, last: int, dropped: Collection[int] = ()
) -> AsyncIterator[WaitingMessage]:
    """Yield all messages up to `last`: those of the set, and those pushed above it. All of them can be opened, or are dropped."""
    async for carried in messages(log, queue, shard, found, START):
        if carried.id.seqnum not in dropped:
            yield carried
    about = shard_id(queue, shard)
    async for item in _pushed(log, queue, shard, found.covers + 1, last):
        if item.seqnum in dropped:
            continue
        for number, one in enumerate(items_of(PICKER.of(item.seqnum, await log.open(item), about=about))):
            yield WaitingMessage(Id(item.seqnum, number), item.time_ms, one)


async def _pushed(log: Log, queue: str, shard: int, start: int, last: int) -> AsyncIterator[boki.Record]:
    """Yield records of messages that are not trimmed.

    Raises:
        Lost: records are lost.
    """
    if start > last:
        return
    async for item in log.book.read(tags.queue_messages(queue, shard), start=start, stop=last + 1):
        if isinstance(item, boki.Record):
            yield item
        elif item.kind is not boki.GapKind.TRIMMED:
            raise item.error()
