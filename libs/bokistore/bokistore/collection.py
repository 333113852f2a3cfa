"""Collections of objects of one type: `users = store.collection("user", User)`.

A value is a dataclass, a msgspec Struct, a TypedDict or a pydantic model; it is stored as a JSON object. An id is in the collection
from `create` or `put` until `delete`, and a scan in a serializable transaction expects that no id is added or removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Generic, TypeVar

from bokilib.errors import NotEncodable
from bokilib.ports import ConsistencyName
from bokilib.records.codec import JsonObject, from_json, to_json
from bokistore.commit.group_commit import GroupCommit
from bokistore.commit.transactions import Transaction
from bokistore.errors import AlreadyExists, NoSuchObject
from bokistore.model.directory_rules import check_collection, object_name
from bokistore.model.operations import Set
from bokistore.objects import StoreObject
from bokistore.read.snapshot import Snapshot, whole_value

T = TypeVar("T")

SCANNED_AT_ONCE: Final = 256


class Collection(Generic[T]):
    """See the module. Made by `store.collection(name, kind)`."""

    def __init__(self, commits: GroupCommit, name: str, kind: type[T]) -> None:
        self.name: Final = check_collection(name)
        self.kind: Final = kind
        self._commits = commits

    def __repr__(self) -> str:
        return f"<bokistore.Collection {self.name!r} of {self.kind.__name__}>"

    def within(self, transaction: Transaction) -> TxCollection[T]:
        """Return the collection as a transaction sees it."""
        return TxCollection(self, transaction)

    def object(self, id: str) -> StoreObject:
        """Return the object of an id, for operations on parts of it."""
        return StoreObject(self._commits.views, object_name(self.name, id))

    async def create(self, id: str, value: T) -> None:
        """Create an id. Raises AlreadyExists, NotEncodable; otherwise as `store.transact`."""
        await self._commits.run(lambda tx: self.within(tx).create(id, value))

    async def put(self, id: str, value: T) -> None:
        """Create an id, or replace its value."""
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

    async def scan(
        self, *, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> AsyncIterator[tuple[str, T]]:
        """Iterate over the ids and values of one snapshot, in the order of the ids."""
        views = self._commits.views
        snapshot = Snapshot(views, at or await views.log.book.now(consistency=consistency))
        ids = await snapshot.ids(self.name)
        for start in range(0, len(ids), SCANNED_AT_ONCE):
            some = ids[start : start + SCANNED_AT_ONCE]
            values = await snapshot.values([object_name(self.name, id) for id in some])
            for id, value in zip(some, values, strict=True):
                typed = self.of(value)
                if typed is not None:
                    yield id, typed

    def of(self, value: JsonObject | None) -> T | None:
        """Convert a stored object to the collection's type. Raises NotEncodable."""
        return None if value is None else from_json(self.kind, value)

    def json_of(self, value: T) -> JsonObject:
        """Convert a value to the JSON object that is stored. Raises NotEncodable."""
        made = to_json(value)
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
        """Create an id. Raises AlreadyExists."""
        made = self._collection.json_of(value)
        if (await self._tx.view(self._name(id))).exists:
            raise AlreadyExists(
                f"{id!r} is in {self._collection.name!r} already; `put` replaces it",
                collection=self._collection.name,
                id=id,
            )
        self._tx.enter(self._collection.name, id, there=True)
        self._tx.operate(self._name(id), Set("", made))

    async def put(self, id: str, value: T) -> None:
        """Create an id, or replace its value."""
        made = self._collection.json_of(value)
        if not (await self._tx.view(self._name(id))).exists:
            self._tx.enter(self._collection.name, id, there=True)
        self._tx.operate(self._name(id), Set("", made))

    async def update(self, id: str, value: T) -> None:
        """Replace the value of an id that exists. Raises NoSuchObject."""
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
