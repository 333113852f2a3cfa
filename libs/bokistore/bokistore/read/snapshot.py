"""Snapshots of the whole store, and the values that are shown of a view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from bokilib.records.codec import Json, JsonObject, copy_json
from bokistore.model import directory_rules
from bokistore.model.fold import View
from bokistore.model.operations import Missing, look, parse
from bokistore.read.snapshot_reads import Views


def value_at(view: View, path: str, default: Json) -> Json:
    """Return a copy of the value at a path, or the default."""
    found = look(view.content, parse(path))
    return default if isinstance(found, Missing) else copy_json(found)


def whole_value(view: View) -> JsonObject | None:
    """Return a copy of an object, or None if it does not exist."""
    return cast("JsonObject", copy_json(view.value)) if view.exists else None


class Snapshot:
    """A consistent view of the whole store: `async with store.snapshot() as then`. It appends nothing and never conflicts.

    Attributes:
        at: the seqnum at which it reads.
    """

    def __init__(self, views: Views, at: int, had: Iterable[View] = ()) -> None:
        """Open a snapshot.

        Args:
            views: cached reads of objects.
            at: the seqnum at which it reads.
            had: views at this place that are known already.
        """
        self.at: Final = at
        self._views = views
        self._had = {view.name: view for view in had}

    async def get(self, name: str, path: str = "", default: Json = None) -> Json:
        """Return the value at a path of an object, or the default."""
        return value_at(await self._one(name), path, default)

    async def value(self, name: str) -> JsonObject | None:
        """Return an object, or None if it does not exist."""
        return whole_value(await self._one(name))

    async def values(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Return many objects, in one or two round trips."""
        return [whole_value(view) for view in await self._views.many(names, self.at)]

    async def _one(self, name: str) -> View:
        return self._had.get(name) or await self._views.one(name, self.at)

    async def ids(self, collection: str) -> list[str]:
        """Return the ids of a collection, in order."""
        directories = await self._views.directories(directory_rules.check_collection(collection), self.at)
        return sorted(id for directory in directories for id in directory.ids)
