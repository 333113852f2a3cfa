"""`Snapshot`: a consistent past of the whole store, which users get; and what is shown of a view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from bokilib.records.codec import Json, JsonObject, copy_json
from bokistore.model import directory_rules
from bokistore.model.dotted_paths import parse
from bokistore.model.fold import View
from bokistore.model.operations import Missing, look
from bokistore.read.snapshot_reads import Views


def value_at(view: View, path: str, default: Json) -> Json:
    """A copy of what is at a path, or the default."""
    found = look(view.content, parse(path))
    return default if isinstance(found, Missing) else copy_json(found)


def whole_value(view: View) -> JsonObject | None:
    """A copy of an object, None if there is none."""
    return cast("JsonObject", copy_json(view.value)) if view.exists else None


class Snapshot:
    """A consistent past of the whole store: `async with store.snapshot() as then`. No append, and no conflict.

    Attributes:
        at: the seqnum of which it is.
    """

    def __init__(self, views: Views, at: int, had: Iterable[View] = ()) -> None:
        """`had`: objects as of it that came with it."""
        self.at: Final = at
        self._views = views
        self._had = {view.name: view for view in had}

    async def get(self, name: str, path: str = "", default: Json = None) -> Json:
        """What is at a path of an object."""
        return value_at(await self._one(name), path, default)

    async def value(self, name: str) -> JsonObject | None:
        """An object, None if there is none."""
        return whole_value(await self._one(name))

    async def values(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Many objects, in one or two round trips."""
        return [whole_value(view) for view in await self._views.many(names, self.at)]

    async def _one(self, name: str) -> View:
        return self._had.get(name) or await self._views.one(name, self.at)

    async def ids(self, collection: str) -> list[str]:
        """The ids of a collection, in order."""
        directories = await self._views.directories(directory_rules.check_collection(collection), self.at)
        return sorted(id for directory in directories for id in directory.ids)
