"""Reads locks: as they are now, one or many at a time (`lock_view`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import boki
from boki_common.limits import READ_TAGS
from bokiflow import lock_view
from bokiflow.lock_rules import PICKER
from bokiflow.lock_view import Found, View
from bokilib import tags
from bokilib.log import Log

AT_ONCE: Final = READ_TAGS // 2
"""Locks of one read: each has two streams."""


async def read(opened: Log, name: str) -> View:
    """A lock as it is now: no append that was acknowledged before is missed. Raises Lost."""
    return (await read_many(opened, [name]))[name]


async def read_many(opened: Log, names: Sequence[str]) -> dict[str, View]:
    """The same of up to `AT_ONCE` locks. Raises Lost: of one of them."""
    views: dict[str, View] = {}
    left = list(dict.fromkeys(names))
    while left:
        position = await opened.book.now(consistency="linearizable")
        found, trimmed = await _records(opened, left, position)
        again = []
        for name in left:
            if lock_view.hides_some(found[name], trimmed[name]):
                newest = await opened.book.read_prev(tags.lock_checkpoint(name), consistency="linearizable")
                if newest is not None and newest.seqnum > position:
                    again.append(name)
                    continue
            views[name] = lock_view.viewed(position, found[name], trimmed[name])
        left = again
    return views


async def _records(opened: Log, names: Sequence[str], position: int) -> tuple[dict[str, list[Found]], dict[str, int]]:
    """Records and checkpoints of locks, and up to where their streams are trimmed."""
    streams = {tags.lock(name): name for name in names}
    found: dict[str, list[Found]] = {name: [] for name in names}
    trimmed = dict.fromkeys(names, 0)
    wanted = [*streams, *(tags.lock_checkpoint(name) for name in names)]
    async for item in opened.book.read(tags=wanted, start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            if item.kind == boki.GapKind.LOST:
                raise item.error()
            for name in names if item.tag is None else [streams[item.tag]] if item.tag in streams else []:
                trimmed[name] = max(trimmed[name], item.last)
            continue
        envelope = await opened.open(item)
        events = PICKER.of(item.seqnum, envelope)
        for name in dict.fromkeys(event.id for event in events):
            if name in found:
                about = [event for event in events if event.id == name]
                found[name].append(Found(item.seqnum, item.time_ms, about))
    return found, trimmed
