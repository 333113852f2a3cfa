"""Cached views of this process, and up to where each is known to hold. Pure.

    known    view       as of `view.seen`
             upto       no record of the object lies above `view.seen` and at or below this
             steady     when it was last checked, no other process had changed it

A known view is the object at every place from `view.seen` to `upto`: there no request is needed. Several known views form a snapshot where
their ranges meet (`common_place`). Only the log knows whether they are the newest: an append that expects it, or a query.

A missing object is known as of a place too, and says nothing about lower places: it may have existed and been forgotten. One that was read
as of now was missing at some place at or above `view.seen`, which the log did not name. Such a view is *unproven*: its `upto` is 0, it
holds at no place, and only records above it may be read (`beyond`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from bokistore.model.fold import View

CACHED_VIEWS: Final = 10_000


class KnownView(NamedTuple):
    """A cached view and its range; see the module."""

    view: View
    upto: int
    steady: bool = True

    def holds_at(self, place: int) -> bool:
        """Return whether it is the object at a place."""
        return self.view.seen <= place <= self.upto

    @property
    def beyond(self) -> int:
        """The place above which records of the object are new."""
        return max(self.view.seen, self.upto)


def common_place(several: Iterable[KnownView], least: int = 0) -> int:
    """Return the newest place where all of these views hold, if it is at or above `least`; otherwise 0.

    Args:
        several: at least one.
        least: the lowest place that counts.
    """
    views = list(several)
    newest = min(known.upto for known in views)
    return newest if newest >= max(least, *(known.view.seen for known in views)) else 0


class ViewCache:
    """Views of a process; the least recently used is dropped."""

    def __init__(self, limit: int = CACHED_VIEWS) -> None:
        self._limit = limit
        self._known: OrderedDict[str, KnownView] = OrderedDict()

    @property
    def keeps(self) -> bool:
        """False if the cache has no room for any view."""
        return self._limit > 0

    def get(self, name: str) -> KnownView | None:
        known = self._known.get(name)
        if known is not None:
            self._known.move_to_end(name)
        return known

    def put(self, view: View, *, upto: int = 0, steady: bool | None = None, proven: bool = True) -> None:
        """Note a view, and that it holds up to a place; do nothing if a newer one is known.

        Args:
            view: the view.
            upto: at or below `view.seen` it has no effect.
            steady: None: as it was.
            proven: whether it holds at `view.seen`; see the module.
        """
        before = self._known.get(view.name)
        if not self._limit or (before is not None and before.view.seen > view.seen):
            return
        upto = max(upto, view.seen) if proven else 0
        if before is not None and before.view.seen == view.seen:
            upto = max(upto, before.upto)
        if steady is None:
            steady = before is None or before.steady
        self._known[view.name] = KnownView(view, upto, steady)
        self._known.move_to_end(view.name)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def counted(self, view: View) -> View:
        """Return the cached view of the same place, which may have been counted again; otherwise this one."""
        known = self.get(view.name)
        return known.view if known is not None and known.view.seen == view.seen else view

    def recount(self, name: str, records: int, size: int) -> None:
        """Correct what lies above an object's newest checkpoint, if the new count is smaller."""
        known = self._known.get(name)
        if known is not None and known.view.records > records:
            view = msgspec.structs.replace(known.view, records=records, size=size)
            self._known[name] = known._replace(view=view)

    def drop(self, name: str) -> None:
        """Forget a view: records of it may be gone from the log."""
        self._known.pop(name, None)
