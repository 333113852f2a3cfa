"""Watches of one object: each change as it happens.

A watcher that is overtaken by a trim (it was away for longer than replaced records are kept) gets one change with `resync`, from the last
known state to the current one. States that it computes from changes stay right, and it knows that some changes are not separate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import boki
from bokilib.records import tags
from bokilib.records.codec import JsonObject
from bokistore.model.events import PICKER
from bokistore.model.fold import View, after_record
from bokistore.model.operations import Change, differences
from bokistore.read.snapshot import whole_value
from bokistore.read.snapshot_reads import Views


class Watched(NamedTuple):
    """A change of a watched object.

    Attributes:
        seqnum: up to where the object was seen.
        before: the object before the change, None if it did not exist.
        after: the object after the change, None if it does not exist.
        changes: the difference.
        resync: several changes in one; the records between are trimmed.
    """

    seqnum: int
    before: JsonObject | None
    after: JsonObject | None
    changes: list[Change]
    resync: bool


async def watch(views: Views, name: str, start: int | None) -> AsyncIterator[Watched]:
    """Yield the changes of an object. See `StoreObject.watch`."""
    snapshot = start - 1 if start is not None and start > 1 else await views.log.book.now()
    view = await views.one(name, snapshot)
    async for item in views.log.book.read(tags.store_object(name), start=snapshot + 1, follow=True):
        if isinstance(item, boki.Gap):
            after = await views.one(name)
            if after.seen > view.seen:
                if (after.exists, after.value) != (view.exists, view.value):
                    yield _watched(view, after, resync=True)
                view = after
        elif item.seqnum > view.seen:
            after = after_record(view, item.seqnum, PICKER.of(item.seqnum, await views.log.open(item), name))
            if (after.exists, after.value) != (view.exists, view.value):
                yield _watched(view, after, resync=False)
            view = after


def _watched(before: View, after: View, *, resync: bool) -> Watched:
    changes = differences(before.content, after.content)
    return Watched(after.seen, whole_value(before), whole_value(after), changes, resync)
