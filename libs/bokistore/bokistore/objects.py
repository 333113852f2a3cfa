"""Objects of a store, and collections of objects of one type: `users = store.collection("user", User)`.

Each operation is one record without a condition, so two that change one object do not disturb each other. Its result is computed from the
records before it. An operation that was not possible raises OperationFailed; it is in the log and changed nothing.

A value of a collection is a dataclass, a msgspec Struct, a TypedDict or a pydantic model; it is stored as a JSON object. An id is in the
collection from `create` or `put` until `delete`, and a scan in a serializable transaction expects that no id is added or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar, overload

from boki_common.errors import BokiError, InvalidArgument
from boki_common.unpickled import Unpickled
from bokilib.errors import NotEncodable
from bokilib.iteration import Iteration
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.records.codec import Json, JsonObject, copy_json, from_json, stored_json
from bokilib.records.contribution import Contribution, check_in_book
from bokistore.commit.group_commit import GroupCommit
from bokistore.commit.transactions import Transaction
from bokistore.errors import AlreadyExists, NoSuchObject, ResultUnknown
from bokistore.model.directory_rules import check_collection, check_object, object_name
from bokistore.model.events import Ops
from bokistore.model.fold import View, apply_all, gone
from bokistore.model.operations import (
    AnyOperation,
    Change,
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
from bokistore.read.inspection import Version, Watched
from bokistore.read.snapshot_reads import Snapshot, Views, value_at, whole_value


class StoreObject(Unpickled):
    """See the module. Made by `store.object(name)`; it need not exist."""

    def __init__(self, views: Views, name: str) -> None:
        self.name: Final = check_object(name)
        self._views = views

    def __repr__(self) -> str:
        return f"<bokistore.StoreObject {self.name!r}>"

    # -- reading

    async def view(self, at: int | None = None, consistency: ConsistencyName = "session") -> View:
        """Return the object and the place where it was seen, for tools."""
        return await self._views.one(self.name, at, consistency)

    @overload
    async def get(
        self, path: str = "", default: Json = None, *, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> Json: ...

    @overload
    async def get(
        self,
        path: str = "",
        default: None = None,
        *,
        type: type[T],
        at: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> T | None: ...

    @overload
    async def get(
        self,
        path: str,
        default: T,
        *,
        type: type[T],
        at: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> T: ...

    async def get(
        self,
        path: str = "",
        default: Any = None,
        *,
        type: type[Any] | None = None,
        at: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> Any:
        """Return a copy of the value at a path, or the default.

        Args:
            path: dotted keys, for example "a.b.0".
            default: returned where the path leads nowhere.
            type: what the value must be, such as `int`, `list[str]` or a dataclass; default: any JSON. If the default is None, null is
                returned as None.
            at: a seqnum to read at; default: now.
            consistency: as in `boki.Book.read_next`.

        Raises:
            Trimmed: what the object was at `at` is no longer kept; it is kept from `error.mark` on.
            InvalidArgument: the path is not valid.
            NotEncodable: the value does not fit `type`.
        """
        return value_at(await self.view(at, consistency), path, default, type)

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
            ResultUnknown: they were applied, and their results cannot be computed, since what was before them could not be read.
            InvalidArgument, NotEncodable, AtomicTooLarge: nothing was sent.
        """
        event, seqnum = await self._append(operations)
        try:
            before = await self._views.one(self.name, seqnum - 1)
        except BokiError as missing:  # whatever it says of the read, the operation is in the log
            before = gone(self.name, 0)
            if not (isinstance(operations[0], Set) and not operations[0].path):
                raise ResultUnknown(
                    f"the operation is in the log at {seqnum}, but what was before it could not be read: {missing}",
                    object=self.name,
                    seqnum=seqnum,
                ) from missing
        _, results = apply_all(before, event.operations)
        if before.seen:
            self._views.cached.appended(before, seqnum, [event])
        for result in results:
            if isinstance(result, Failed):
                raise result.error(self.name)
        return [copy_json(result) for result in results if not isinstance(result, Failed)]

    async def send(self, *operations: AnyOperation) -> int:
        """Append operations without computing their results, in one round trip; return their seqnum. Raises as `apply`."""
        return (await self._append(operations))[1]

    def sending(self, *operations: AnyOperation) -> Contribution:
        """Return the contribution by which any library's record sends operations: for `bokilib.Atomic`, or the handler of a machine.

        They have no condition: they apply to whatever the object then is, and one that is not possible then changes nothing.

        Raises:
            InvalidArgument: there are none, or one is not valid.
        """
        if not operations:
            raise InvalidArgument("expected one operation at least, found none")
        event = Ops(self.name, tuple(checked(one) for one in operations))
        origin = self._views.log.origin(f"object {self.name!r}")
        return Contribution((tags.store_object(self.name),), {}, (event,), origin)

    async def _append(self, operations: Sequence[AnyOperation]) -> tuple[Ops, int]:
        """Append operations without a condition; return the event and its seqnum."""
        part = self.sending(*operations)
        (event,) = part.events
        assert isinstance(event, Ops)
        return event, await self._views.log.append(part)

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

    def watch(self, *, start: int | None = None) -> Iteration[Watched]:
        """Return an iterator over changes as they happen: `async for change in x.watch()`. It never ends, unless it is closed.

        An `anext` that is cancelled, as by `asyncio.wait_for`, loses no change: the next one continues.

        Args:
            start: the first seqnum whose change is wanted; default: what comes after the first `anext` was called.

        Raises:
            Trimmed: what the object was before `start` is no longer kept.
            IteratorBusy: another task waits for the next change of this iterator.
            ClosedError: the client is closed.
        """
        return inspection.watch(self._views, self.name, start)

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


T = TypeVar("T")

SCANNED_AT_ONCE: Final = 256


class Collection(Unpickled, Generic[T]):
    """See the module. Made by `store.collection(name, kind)`."""

    def __init__(self, commits: GroupCommit, name: str, kind: type[T]) -> None:
        self.name: Final = check_collection(name)
        self.kind: Final = kind
        self._commits = commits

    def __repr__(self) -> str:
        return f"<bokistore.Collection {self.name!r} of {self.kind.__name__}>"

    def within(self, transaction: Transaction) -> TxCollection[T]:
        """Return the collection as a transaction sees it. Raises WrongBook."""
        log = self._commits.views.log
        if transaction.log is not log:
            check_in_book("a transaction", transaction.log.identity, log.origin(f"collection {self.name!r}"))
        return TxCollection(self, transaction)

    def object(self, id: str) -> StoreObject:
        """Return the object of an id, for operations on parts of it.

        Operations add no id to the collection: an id that is in it neither by `create` nor by `put` is in no scan.
        """
        return StoreObject(self._commits.views, object_name(self.name, id))

    async def create(self, id: str, value: T) -> None:
        """Create an id. Raises AlreadyExists, NotEncodable; otherwise as `store.transact`."""
        await self._commits.run(lambda tx: self.within(tx).create(id, value))

    async def put(self, id: str, value: T) -> None:
        """Create an id, or replace its value and clear its expiry (`store.expire`)."""
        await self._commits.run(lambda tx: self.within(tx).put(id, value))

    async def delete(self, id: str) -> bool:
        """Delete an id; return whether it existed."""
        return await self._commits.run(lambda tx: self.within(tx).delete(id))

    async def get(self, id: str, *, at: int | None = None, consistency: ConsistencyName = "session") -> T | None:
        """Return the value of an id, or None if it does not exist."""
        return self.of(await self.object(id).value(at=at, consistency=consistency))

    async def ids(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> list[str]:
        """Return all ids, in order."""
        directories = await self._commits.views.directories(self.name, at, consistency)
        return sorted(id for directory in directories for id in directory.ids)

    def scan(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> Iteration[tuple[str, T]]:
        """Iterate over the ids and values of one snapshot, in the order of the ids. An `anext` that is cancelled loses none."""
        views = self._commits.views
        snapshot: Snapshot | None = None
        left: list[str] | None = None

        async def more() -> list[tuple[str, T]] | None:
            nonlocal snapshot, left
            if snapshot is None:
                snapshot = Snapshot(views, at or await views.log.book.now(consistency=consistency))
            if left is None:
                left = await snapshot.ids(self.name)
            if not left:
                return None
            some = left[:SCANNED_AT_ONCE]
            values = await snapshot.values([object_name(self.name, id) for id in some])
            typed = [(id, self.of(value)) for id, value in zip(some, values, strict=True)]
            left = left[SCANNED_AT_ONCE:]
            return [(id, value) for id, value in typed if value is not None]

        return Iteration(more)

    def of(self, value: JsonObject | None) -> T | None:
        """Convert a stored object to the collection's type. Raises NotEncodable."""
        return None if value is None else from_json(self.kind, value)

    def json_of(self, value: T) -> JsonObject:
        """Convert a value to the JSON object that is stored. Raises NotEncodable."""
        made = stored_json(self.kind, value)
        if not isinstance(made, dict):
            raise NotEncodable(f"expected a {self.kind.__name__} that is a JSON object, found {type(made).__name__}")
        return made


class TxCollection(Generic[T]):
    """A collection as a transaction sees it. Every method is awaited, also those that only write."""

    def __init__(self, collection: Collection[T], transaction: Transaction) -> None:
        self._collection = collection
        self._tx = transaction

    def _name(self, id: str) -> str:
        return object_name(self._collection.name, id)

    async def get(self, id: str) -> T | None:
        """Return the value of an id, or None if it does not exist."""
        return self._collection.of(whole_value(await self._tx.view(self._name(id))))

    async def get_many(self, ids: Sequence[str]) -> list[T | None]:
        """Return many values, in one or two round trips."""
        return [self._collection.of(value) for value in await self._tx.values([self._name(id) for id in ids])]

    async def ids(self) -> list[str]:
        """Return all ids, in order."""
        return await self._tx.ids(self._collection.name)

    async def create(self, id: str, value: T) -> None:
        """Create an id. Raises AlreadyExists: it has an object, also one that only operations on parts of it have made."""
        made = self._collection.json_of(value)
        if (await self._tx.view(self._name(id))).exists:
            raise AlreadyExists(
                f"expected no object {self._name(id)!r}, found one; `put` replaces it, and `delete` removes it",
                collection=self._collection.name,
                id=id,
            )
        self._tx.enter(self._collection.name, id, there=True)
        self._tx.operate(self._name(id), Set("", made))

    async def put(self, id: str, value: T) -> None:
        """Create an id, or replace its value and clear its expiry (`store.expire`)."""
        made = self._collection.json_of(value)
        view = await self._tx.view(self._name(id))
        if not view.exists:
            self._tx.enter(self._collection.name, id, there=True)
        self._tx.operate(self._name(id), Set("", made))
        if view.expires_ms is not None:
            self._tx.expire(self._name(id), None)

    async def update(self, id: str, value: T) -> None:
        """Replace the value of an id that exists, and keep its expiry. Raises NoSuchObject."""
        if not (await self._tx.view(self._name(id))).exists:
            raise NoSuchObject(f"{id!r} is not in {self._collection.name!r}; `put` makes it", object=self._name(id))
        self._tx.operate(self._name(id), Set("", self._collection.json_of(value)))

    async def delete(self, id: str) -> bool:
        """Delete an id; return whether it existed."""
        if not (await self._tx.view(self._name(id))).exists:
            return False
        self._tx.enter(self._collection.name, id, there=False)
        self._tx.delete(self._name(id))
        return True
