"""Strays: messages in streams of shards that the queue of that name does not have. They are moved to the shards that it has.

A program that has a queue open does not know at once that the queue was deleted and made again with fewer shards. Its `push` finds out,
since the record expects the settings. A contribution of its (`Queue.pushed`) expects nothing, and neither does a push of an older version:
it may join the stream of a shard that no member owns and no popper reads. The settings say which these may be (`Config.streams`).

- Members that own shard 0, poppers that find nothing, and carriers look for strays, and move them: one record pushes some of them to their
  shards, and says up to where it did (`Moved`). It expects that no other record did so since its streams were read, and that the settings
  are those that were read. So each is moved once.
- A moved message is pushed at the place of that record, under another id: a group that was registered before it gets the message.
- Records that were moved are trimmed, and then the `Moved` itself: no record has to be rewritten.
- A record that cannot be opened stays, with those behind it in its stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError, Conflict
from boki_common.logs import get_logger
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution, joined
from bokiqueue import settings
from bokiqueue.model.events import PICKER, START, Config, Id, Item, Moved, for_all, group_of, items_of, shard_id
from bokiqueue.model.old_rules import WaitingMessage, size_of
from bokiqueue.push.producer import Producer

MANY: Final = 255
"""The most places in one call of `read_prev_many`."""
MOST: Final = 64
"""The most messages in one record: each may have a shard of its own."""
BYTES: Final = 128 * 1024

log_lines = get_logger(__name__)


class Stray(NamedTuple):
    """A message in the stream of a shard that the queue does not have; None for a record that cannot be opened."""

    shard: int
    message: WaitingMessage | None
    seqnum: int


class _From:
    """The source of randomness of a producer: the first message that it pushes decides at which shard it begins."""

    def __init__(self, first: Id) -> None:
        self._first = first

    def token(self, size: int) -> bytes:
        return (self._first.seqnum % (1 << (8 * size))).to_bytes(size, "big")


async def find(log: Log, config: Config, snapshot: int, most: int) -> list[Stray]:
    """Return up to `most` strays of each stream as of a place, in the order of the log. A record that cannot be opened ends its stream."""
    if config.streams <= config.shards:
        return []
    moved = await _moved(log, config, snapshot)
    shards = range(config.shards, config.streams)
    places = [(tags.queue_messages(config.queue, shard), snapshot) for shard in shards]
    newest: list[boki.Record | None] = []
    for first in range(0, len(places), MANY):
        newest += await log.book.read_prev_many(places[first : first + MANY])
    found: list[Stray] = []
    for shard, record in zip(shards, newest, strict=True):
        after = max(moved.get(shard, START), Id(config.made, -1))
        if record is not None and record.seqnum >= after.seqnum:
            found += await _read(log, config.queue, shard, after, snapshot, most)
    return sorted(found, key=lambda one: (one.seqnum, one.shard, one.message.id if one.message is not None else START))


async def _moved(log: Log, config: Config, snapshot: int) -> Mapping[int, Id]:
    """Return the last message of each stream that was moved and is not trimmed yet."""
    try:
        record = await log.book.read_prev(tags.queue_moved(config.queue), at_most=snapshot)
    except boki.Trimmed:
        return {}
    if record is None or record.seqnum < config.made:
        return {}
    events = PICKER.of(record.seqnum, await log.open(record), about=config.queue)
    return {shard: last for event in events if isinstance(event, Moved) for shard, last in event.upto}


async def _read(log: Log, queue: str, shard: int, after: Id, last: int, most: int) -> list[Stray]:
    """Return strays of one stream behind a message."""
    found: list[Stray] = []
    async for item in log.book.read(tags.queue_messages(queue, shard), start=max(after.seqnum, 1), stop=last + 1):
        if isinstance(item, boki.Gap):
            if item.kind is not boki.GapKind.TRIMMED:
                raise item.error()
            continue
        try:
            items = items_of(PICKER.of(item.seqnum, await log.open(item), about=shard_id(queue, shard)))
        except BokiError as error:
            if error.retryable:
                raise
            return [*found, Stray(shard, None, item.seqnum)]
        for number, one in enumerate(items):
            id = Id(item.seqnum, number)
            if id > after:
                found.append(Stray(shard, WaitingMessage(id, item.time_ms, for_all(one)), item.seqnum))
        if len(found) >= most:
            break
    return found


async def move(log: Log, queue: str) -> int:
    """Move all strays of a queue that can be opened, and return their number. Nothing is done if the queue was deleted."""
    count = 0
    while True:
        found, snapshot = await settings.newest_at(log, queue)
        if found is None or found.config.deleted:
            return count
        strays = await find(log, found.config, snapshot, MOST)
        if not strays:
            await _trim_moved(log, queue, snapshot)
            return count
        try:
            moved = await _move_some(log, found.config, snapshot, strays)
        except Conflict:
            continue  # others moved them, or the settings were changed
        if not moved:
            return count
        count += moved


async def _move_some(log: Log, config: Config, snapshot: int, strays: list[Stray]) -> int:
    """Append one record that moves the first strays, and trim what it moved. Return their number.

    Raises:
        Conflict: others moved strays, or the settings were changed since the place `snapshot`.
    """
    chosen: list[WaitingMessage] = []
    upto = dict(await _moved(log, config, snapshot))
    size, closed = 0, set[int]()
    for stray in strays:
        if stray.message is None:
            closed.add(stray.shard)
            log_lines.warning(
                "stray messages not moved: their record cannot be opened",
                queue=config.queue,
                shard=stray.shard,
                record=stray.seqnum,
            )
            continue
        size += size_of(stray.message)
        if len(chosen) == MOST or (chosen and size > BYTES):
            break
        chosen.append(stray.message)
        upto[stray.shard] = stray.message.id
    if not chosen:
        return 0
    by_group: dict[str, list[Item]] = {}
    for one in chosen:
        by_group.setdefault(group_of(one.item), []).append(_item(config, one, log.now_ms()))
    producer = Producer(log, config, _From(chosen[0].id))
    parts = [producer.part(items, group) for group, items in by_group.items()]
    tag = tags.queue_moved(config.queue)
    event = Moved(config.queue, tuple(sorted(upto.items())))
    own = Contribution((tag,), {tag: snapshot, tags.queue_config(config.queue): snapshot}, (event,))
    await log.append(joined([*parts, own]), settle=True)
    log_lines.info(
        "messages moved: they were pushed to shards of a deleted queue of this name",
        queue=config.queue,
        messages=len(chosen),
    )
    marks = [(tags.queue_messages(config.queue, shard), last.seqnum) for shard, last in upto.items()]
    await settings.trim_replaced(log, marks)
    return len(chosen)


def _item(config: Config, one: WaitingMessage, now_ms: int) -> Item:
    """Return a message as it is pushed again: what is left of its delay, and nothing that a popped queue does not have."""
    item = one.item
    if config.mode == "pop":
        return Item(item.body, item.key, None, 0, item.source, item.priority)
    left_ms = max(0, item.delay_ms - max(0, now_ms - one.pushed_ms))
    return Item(item.body, item.key, item.dedup, left_ms, item.source, item.priority)


async def _trim_moved(log: Log, queue: str, snapshot: int) -> None:
    """Trim what was moved, and then the record that says so: no stray is left as of this place."""
    tag = tags.queue_moved(queue)
    try:
        record = await log.book.read_prev(tag, at_most=snapshot)
    except boki.Trimmed:
        return
    if record is None:
        return
    for event in PICKER.of(record.seqnum, await log.open(record), about=queue):
        if isinstance(event, Moved):
            marks = [(tags.queue_messages(queue, shard), last.seqnum + 1) for shard, last in event.upto]
            await settings.trim_all(log, marks)
    await log.book.trim([(tag, record.seqnum + 1)])
