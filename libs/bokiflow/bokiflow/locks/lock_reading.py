"""Reads locks: as they are now, one or many at a time (`lock_view`).

Each lock is read by its own two streams. In one read of the streams of many, a record that one lock's stream still has would count for
another lock that it changed too, although that one was forgotten since and is held again: its queue would have a dead holder in front.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import boki
from bokiflow.model import lock_view
from bokiflow.model.lock_rules import PICKER
from bokiflow.model.lock_view import Found, View
from bokilib.append.log import Log
from bokilib.records import tags

AT_ONCE: Final = 128
"""Locks that are read at the same time."""


async def read(opened: Log, name: str) -> View:
    """A lock as it is now: no append that was acknowledged before is missed. Raises Lost."""
    return (await read_many(opened, [name]))[name]


async def read_many(opened: Log, names: Sequence[str]) -> dict[str, View]:
    """The same of up to `AT_ONCE` locks. Raises Lost: of one of them."""
    views: dict[str, View] = {}
    left = list(dict.fromkeys(names))
    while left:
        position = await opened.book.now(consistency="linearizable")
        read = await asyncio.gather(*(_records(opened, name, position) for name in left))
        again = []
        for name, (found, trimmed) in zip(left, read, strict=True):
            if lock_view.hides_some(found, trimmed):
                newest = await opened.book.read_prev(tags.lock_checkpoint(name), consistency="linearizable")
                if newest is not None and newest.seqnum > position:
                    again.append(name)
                    continue
            views[name] = lock_view.viewed(position, found, trimmed)
        left = again
    return views


async def _records(opened: Log, name: str, position: int) -> tuple[list[Found], int]:
    """Return the records and checkpoints of a lock, and up to where its stream is trimmed. Raises Lost."""
    stream = tags.lock(name)
    found: list[Found] = []
    trimmed = 0
    async for item in opened.book.read(tags=[stream, tags.lock_checkpoint(name)], start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            if item.kind == boki.GapKind.LOST:
                raise item.error()
            if item.tag in (None, stream):
                trimmed = max(trimmed, item.last)
            continue
        events = PICKER.of(item.seqnum, await opened.open(item), about=name)
        if events:
            found.append(Found(item.seqnum, item.time_ms, events))
    return found, trimmed
