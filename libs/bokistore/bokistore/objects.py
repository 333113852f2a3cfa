"""One object of a store: operations at once, reads, and what became of it.

Each operation is one record, without a condition: two that change one object do not disturb each other. Its result is computed from
what is in the log before it, and one that could not be done raises OperationFailed; it changed nothing, though it is in the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from boki_common.errors import InvalidArgument, Trimmed
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.records.codec import Json, JsonObject, copy_json
from bokilib.records.contribution import Contribution
from bokistore import inspection
from bokistore.errors import HistoryMissing, ResultUnknown
from bokistore.inspection import Version
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
        """The object with where it was seen, for tools."""
        return await self._views.one(self.name, at, consistency)

    async def get(
        self, path: str = "", default: Json = None, *, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> Json:
        """What is at a path, or the default.

        Args:
            at: a seqnum: as it was there.
            consistency: as in `boki.Book.read_next`.

        Raises:
            Trimmed: `at` is older than what is kept. InvalidArgument.
        """
        return value_at(await self.view(at, consistency), path, default)

    async def value(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> JsonObject | None:
        """The whole object, None if there is none. Arguments as for `get`."""
        return whole_value(await self.view(at, consistency))

    async def exists(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> bool:
        """Whether there is one. Arguments as for `get`."""
        return (await self.view(at, consistency)).exists

    # -- operations

    async def apply(self, *operations: AnyOperation) -> list[Json]:
        """Several operations as one record, one after the other; returns their results. Values are taken as they are when it is called.

        Raises:
            OperationFailed: of the first that could not be done; the others were.
            AppendUnknown: perhaps applied. ResultUnknown: applied. InvalidArgument, NotEncodable, AtomicTooLarge: not sent.
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
        """As `apply`, without looking at what comes of it: one round trip. Returns where it is in the log."""
        return (await self._append(operations))[1]

    async def _append(self, operations: Sequence[AnyOperation]) -> tuple[Ops, int]:
        """Appends operations without a condition; returns the event and where it is."""
        if not operations:
            raise InvalidArgument("expected one operation at least, found none")
        event = Ops(self.name, tuple(checked(one) for one in operations))
        return event, await self._views.log.append(Contribution((tags.store_object(self.name),), {}, (event,)))

    async def set(self, path: str, value: Json) -> None:
        """Puts a value at a path, and objects on the way to it."""
        await self.apply(Set(path, value))

    async def make_object(self, path: str) -> None:
        """Makes an object, unless there is one."""
        await self.apply(MakeObject(path))

    async def make_array(self, path: str) -> None:
        """Makes an array, unless there is one."""
        await self.apply(MakeArray(path))

    async def push(self, path: str, value: Json, *, limit: int | None = None) -> int:
        """Appends to an array, which is made if it is not there; returns its length. With a limit, drops from its head."""
        (length,) = await self.apply(Push(path, value, limit))
        assert isinstance(length, int)
        return length

    async def pop(self, path: str) -> Json:
        """Takes the last of an array."""
        (last,) = await self.apply(Pop(path))
        return last

    async def inc(self, path: str, delta: int | float = 1) -> int | float:
        """Adds to a number, 0 if it is not there; returns the sum."""
        (total,) = await self.apply(Inc(path, delta))
        assert isinstance(total, (int, float))
        return total

    async def delete(self, path: str) -> bool:
        """Removes what is at a path; returns whether it was there. The object ends by `store.delete(name)`."""
        (was_there,) = await self.apply(Delete(path))
        return bool(was_there)

    async def merge(self, path: str, patch: JsonObject) -> None:
        """Merges a patch (RFC 7386): null removes."""
        await self.apply(Merge(path, patch))

    # -- over time

    def watch(self, *, start: int | None = None) -> AsyncIterator[Watched]:
        """Each change as it comes, from now on, or from a seqnum: `async for change in x.watch()`."""
        return watch(self._views, self.name, start)

    async def history(
        self,
        *,
        start: int | None = None,
        stop: int | None = None,
        limit: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> list[Version]:
        """What happened to it, as far as it is kept, oldest first. `start` is included, `stop` is not.

        Args:
            limit: only the newest so many, without folding what is before them.
        """
        return await inspection.history(self._views, self.name, start, stop, limit, consistency)

    async def diff(
        self, before: int, after: int | None = None, *, consistency: ConsistencyName = "session"
    ) -> Sequence[Change]:
        """What changed from one seqnum to another, or to now."""
        return await inspection.diff(self._views, self.name, before, after, consistency)
