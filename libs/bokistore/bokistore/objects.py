"""Objects of a store: operations, reads and history of one of them.

Each operation is one record without a condition, so two that change one object do not disturb each other. Its result is computed from the
records before it. An operation that was not possible raises OperationFailed; it is in the log and changed nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from boki_common.errors import InvalidArgument, Trimmed
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.records.codec import Json, JsonObject, copy_json
from bokilib.records.contribution import Contribution
from bokistore.errors import HistoryMissing, ResultUnknown
from bokistore.model.diff import Change
from bokistore.model.events import Ops
from bokistore.model.fold import View, after_record, apply_all, gone
from bokistore.model.operations import (
    AnyOperation,
    Delete,
    Failed,
    Inc,
    MakeArray,
    MakeObject,
    Merge,
    Pop,
    Push,
    Set,
    checked,
)
from bokistore.read import inspection
from bokistore.read.inspection import Version
from bokistore.read.snapshot import value_at, whole_value
from bokistore.read.snapshot_reads import Views
from bokistore.read.watch import Watched, watch


class StoreObject:
    """See the module. Made by `store.object(name)`; it need not exist."""

    def __init__(self, views: Views, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"expected the name of an object, a text that is not empty, found {name!r:.80}")
        self.name: Final = name
        self._views = views

    def __repr__(self) -> str:
        return f"<bokistore.StoreObject {self.name!r}>"

    # -- reading

    async def view(self, at: int | None = None, consistency: ConsistencyName = "session") -> View:
        """Return the object and the place where it was seen, for tools."""
        return await self._views.one(self.name, at, consistency)

    async def get(
        self, path: str = "", default: Json = None, *, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> Json:
        """Return a copy of the value at a path, or the default.

        Args:
            path: dotted keys, for example "a.b.0".
            default: returned where the path leads nowhere.
            at: a seqnum to read at; default: now.
            consistency: as in `boki.Book.read_next`.

        Raises:
            Trimmed: the history at `at` is no longer kept.
            InvalidArgument: the path is not valid.
        """
        return value_at(await self.view(at, consistency), path, default)

    async def value(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> JsonObject | None:
        """Return a copy of the whole object, or None if it does not exist. Arguments as for `get`."""
        return whole_value(await self.view(at, consistency))

    async def exists(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> bool:
        """Return whether the object exists. Arguments as for `get`."""
        return (await self.view(at, consistency)).exists

    # -- operations

    async def apply(self, *operations: AnyOperation) -> list[Json]:
        """Apply several operations, in order, as one record; return their results. Values are copied before the first await.

        Raises:
            OperationFailed: the first operation that was not possible; the others were applied.
            AppendUnknown: they may have been applied.
            ResultUnknown: they were applied, and their results cannot be computed.
            InvalidArgument, NotEncodable, AtomicTooLarge: nothing was sent.
        """
        event, seqnum = await self._append(operations)
        try:
            before = await self._views.one(self.name, seqnum - 1)
        except (Trimmed, HistoryMissing) as missing:
            before = gone(self.name, 0)
            if not (isinstance(operations[0], Set) and not operations[0].path):
                raise ResultUnknown(
                    f"the operation is in the log at {seqnum}, but what was before it is not known: {missing}",
                    object=self.name,
                    seqnum=seqnum,
                ) from missing
        _, results = apply_all(before, event.operations)
        if before.seen:
            self._views.learned(after_record(before, seqnum, [event]))
        for result in results:
            if isinstance(result, Failed):
                raise result.error(self.name)
        return [copy_json(result) for result in results if not isinstance(result, Failed)]

    async def send(self, *operations: AnyOperation) -> int:
        """Append operations without computing their results, in one round trip; return their seqnum. Raises as `apply`."""
        return (await self._append(operations))[1]

    async def _append(self, operations: Sequence[AnyOperation]) -> tuple[Ops, int]:
        """Append operations without a condition; return the event and its seqnum."""
        if not operations:
            raise InvalidArgument("expected one operation at least, found none")
        event = Ops(self.name, tuple(checked(one) for one in operations))
        return event, await self._views.log.append(Contribution((tags.store_object(self.name),), {}, (event,)))

    async def set(self, path: str, value: Json) -> None:
        """Set the value at a path, creating objects on the way to it."""
        await self.apply(Set(path, value))

    async def make_object(self, path: str) -> None:
        """Create an empty object at a path, unless there is one."""
        await self.apply(MakeObject(path))

    async def make_array(self, path: str) -> None:
        """Create an empty array at a path, unless there is one."""
        await self.apply(MakeArray(path))

    async def push(self, path: str, value: Json, *, limit: int | None = None) -> int:
        """Append to an array, created if needed; return its new length. With a limit, items are dropped from its head."""
        (length,) = await self.apply(Push(path, value, limit))
        assert isinstance(length, int)
        return length

    async def pop(self, path: str) -> Json:
        """Remove the last item of an array and return it."""
        (last,) = await self.apply(Pop(path))
        return last

    async def inc(self, path: str, delta: int | float = 1) -> int | float:
        """Add to a number, counting from 0 if there is none; return the sum."""
        (total,) = await self.apply(Inc(path, delta))
        assert isinstance(total, (int, float))
        return total

    async def delete(self, path: str) -> bool:
        """Remove the value at a path; return whether there was one. `store.delete(name)` deletes the whole object."""
        (was_there,) = await self.apply(Delete(path))
        return bool(was_there)

    async def merge(self, path: str, patch: JsonObject) -> None:
        """Merge a patch (RFC 7386): null removes a key."""
        await self.apply(Merge(path, patch))

    # -- over time

    def watch(self, *, start: int | None = None) -> AsyncIterator[Watched]:
        """Iterate over changes as they happen, from now on or from a seqnum: `async for change in x.watch()`."""
        return watch(self._views, self.name, start)

    async def history(
        self,
        *,
        start: int | None = None,
        stop: int | None = None,
        limit: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> list[Version]:
        """Return the object's versions as far as they are kept, oldest first.

        Args:
            start: the first seqnum to include.
            stop: the first seqnum to leave out.
            limit: return only this many of the newest, without reading what is older.
            consistency: as in `boki.Book.read_next`.
        """
        return await inspection.history(self._views, self.name, start, stop, limit, consistency)

    async def diff(
        self, before: int, after: int | None = None, *, consistency: ConsistencyName = "session"
    ) -> Sequence[Change]:
        """Return the changes between two seqnums, or from one until now."""
        return await inspection.diff(self._views, self.name, before, after, consistency)
