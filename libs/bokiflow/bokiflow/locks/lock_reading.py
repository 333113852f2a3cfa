"""Reading of locks as they are now (`lock_rules`).

Each lock is read from its own two streams. A joint read of several locks' streams would be wrong: a record may change two locks, one of
which was since forgotten and is held again. The other lock's stream still has the record, which would put an old holder in front of the
queue of the forgotten one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import boki
from bokiflow.model import lock_rules
from bokiflow.model.lock_rules import PICKER, LockRecord, LockView
from bokilib.append.log import Log
from bokilib.records import tags

AT_ONCE: Final = 128
"""Locks that are read at the same time."""


async def read(opened: Log, name: str) -> LockView:
    """Read a lock as it is now, with every append that was acknowledged before.

    Raises:
        Lost: a record of the lock is lost.
    """
    return (await read_many(opened, [name]))[name]


async def read_many(opened: Log, names: Sequence[str]) -> dict[str, LockView]:
    """Read up to `AT_ONCE` locks as `read` does.

    Raises:
        Lost: a record of one of the locks is lost.
    """
    views: dict[str, LockView] = {}
    left = list(dict.fromkeys(names))
    while left:
        position = await opened.book.now(consistency="linearizable")
        read = await asyncio.gather(*(_records(opened, name, position) for name in left))
        again = []
        for name, (found, trimmed) in zip(left, read, strict=True):
            if lock_rules.hides_some(found, trimmed):
                newest = await opened.book.read_prev(tags.lock_checkpoint(name), consistency="linearizable")
                if newest is not None and newest.seqnum > position:
                    again.append(name)
                    continue
            views[name] = lock_rules.viewed(position, found, trimmed)
        left = again
    return views


async def _records(opened: Log, name: str, position: int) -> tuple[list[LockRecord], int]:
    """Read the records and checkpoints of a lock, and up to where its stream is trimmed.

    Raises:
        Lost: a record of the lock is lost.
    """
    stream = tags.lock(name)
    found: list[LockRecord] = []
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
            found.append(LockRecord(item.seqnum, item.time_ms, events))
    return found, trimmed
