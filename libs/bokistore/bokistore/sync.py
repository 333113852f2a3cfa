"""The store for programs without an event loop.

    with boki.sync.connect("boki://127.0.0.1:7040") as client:
        store = bokistore.sync.BokiStore(client.book("shop"))
        store.object("x").inc("n")
        store.transact(move, "alice", "bob", 10)          # def move(tx, source, target, amount): tx["alice"].get("balance") …

Same names, arguments, results and errors as the asynchronous classes, whose docstrings are the reference. The body of a transaction
is a plain function that runs in the caller's thread. Any number of threads may use a store; their transactions commit as those of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

import boki
import bokistore
from boki_common.unpickled import Unpickled
from bokilib.ports import ConsistencyName, PayloadHook
from bokilib.records.codec import Json, JsonObject
from bokilib.records.contribution import Contribution
from bokilib.records.isolation import Isolation
from bokilib.retention.carrier import EVERY_S
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokistore.commit.jobs import RUNNING, Job
from bokistore.model.operations import AnyOperation, Change
from bokistore.read.inspection import Version
from bokistore.store import DEFAULTS, StoreSettings

__all__ = ["BokiStore", "Collection", "Snapshot", "StoreObject", "Transaction", "TxObject"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Face(Unpickled):
    """A blocking face of an asynchronous object. Its methods run coroutines of that in the loop of the client."""

    def __init__(self, book: boki.sync.Book) -> None:
        self._book = book


class StoreObject(_Face):
    """An object of a store. Made by `store.object(name)`."""

    def __init__(self, book: boki.sync.Book, found: bokistore.StoreObject) -> None:
        super().__init__(book)
        self.name: Final = found.name
        self._object = found

    @overload
    def get(
        self, path: str = "", default: Json = None, *, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> Json: ...

    @overload
    def get(
        self,
        path: str = "",
        default: None = None,
        *,
        type: type[T],
        at: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> T | None: ...

    @overload
    def get(
        self,
        path: str,
        default: T,
        *,
        type: type[T],
        at: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> T: ...

    def get(
        self,
        path: str = "",
        default: Any = None,
        *,
        type: Any = None,
        at: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> Any:
        return self._book.run(self._object.get(path, default, type=type, at=at, consistency=consistency))

    def value(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> JsonObject | None:
        return self._book.run(self._object.value(at=at, consistency=consistency))

    def exists(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> bool:
        return self._book.run(self._object.exists(at=at, consistency=consistency))

    def apply(self, *operations: AnyOperation) -> list[Json]:
        return self._book.run(self._object.apply(*operations))

    def send(self, *operations: AnyOperation) -> int:
        return self._book.run(self._object.send(*operations))

    def sending(self, *operations: AnyOperation) -> Contribution:
        return self._object.sending(*operations)

    def set(self, path: str, value: Json) -> None:
        self._book.run(self._object.set(path, value))

    def make_object(self, path: str) -> None:
        self._book.run(self._object.make_object(path))

    def make_array(self, path: str) -> None:
        self._book.run(self._object.make_array(path))

    def push(self, path: str, value: Json, *, limit: int | None = None) -> int:
        return self._book.run(self._object.push(path, value, limit=limit))

    def pop(self, path: str) -> Json:
        return self._book.run(self._object.pop(path))

    def inc(self, path: str, delta: int | float = 1) -> int | float:
        return self._book.run(self._object.inc(path, delta))

    def delete(self, path: str) -> bool:
        return self._book.run(self._object.delete(path))

    def merge(self, path: str, patch: JsonObject) -> None:
        self._book.run(self._object.merge(path, patch))

    def history(
        self,
        *,
        start: int | None = None,
        stop: int | None = None,
        limit: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> list[Version]:
        return self._book.run(self._object.history(start=start, stop=stop, limit=limit, consistency=consistency))

    def diff(
        self, before: int, after: int | None = None, *, consistency: ConsistencyName = "session"
    ) -> Sequence[Change]:
        return self._book.run(self._object.diff(before, after, consistency=consistency))


class Snapshot(_Face):
    """A consistent past of the whole store."""

    def __init__(self, book: boki.sync.Book, found: bokistore.Snapshot) -> None:
        super().__init__(book)
        self.at: Final = found.at
        self._snapshot = found

    @overload
    def get(self, name: str, path: str = "", default: Json = None) -> Json: ...

    @overload
    def get(self, name: str, path: str = "", default: None = None, *, type: type[T]) -> T | None: ...

    @overload
    def get(self, name: str, path: str, default: T, *, type: type[T]) -> T: ...

    def get(self, name: str, path: str = "", default: Any = None, *, type: Any = None) -> Any:
        return self._book.run(self._snapshot.get(name, path, default, type=type))

    def value(self, name: str) -> JsonObject | None:
        return self._book.run(self._snapshot.value(name))

    def values(self, names: Sequence[str]) -> list[JsonObject | None]:
        return self._book.run(self._snapshot.values(names))

    def ids(self, collection: str) -> list[str]:
        return self._book.run(self._snapshot.ids(collection))


class TxObject(_Face):
    """An object in a transaction."""

    def __init__(self, book: boki.sync.Book, found: bokistore.TxObject) -> None:
        super().__init__(book)
        self.name: Final = found.name
        self._object = found
        self.set: Final = found.set
        self.make_object: Final = found.make_object
        self.make_array: Final = found.make_array
        self.push: Final = found.push
        self.pop: Final = found.pop
        self.inc: Final = found.inc
        self.delete: Final = found.delete
        self.merge: Final = found.merge

    @overload
    def get(self, path: str = "", default: Json = None) -> Json: ...

    @overload
    def get(self, path: str = "", default: None = None, *, type: type[T]) -> T | None: ...

    @overload
    def get(self, path: str, default: T, *, type: type[T]) -> T: ...

    def get(self, path: str = "", default: Any = None, *, type: Any = None) -> Any:
        return self._book.run(self._object.get(path, default, type=type))

    def value(self) -> JsonObject | None:
        return self._book.run(self._object.value())

    def exists(self) -> bool:
        return self._book.run(self._object.exists())


class Transaction(_Face):
    """A transaction."""

    def __init__(self, book: boki.sync.Book, found: bokistore.Transaction) -> None:
        super().__init__(book)
        self.transaction: Final = found
        """The asynchronous one."""
        self.delete: Final = found.delete
        self.send: Final = found.send
        self.expire: Final = found.expire
        self.add: Final = found.add

    @property
    def seqnum(self) -> int:
        return self.transaction.seqnum

    def __getitem__(self, name: str) -> TxObject:
        return TxObject(self._book, self.transaction[name])

    def values(self, names: Sequence[str]) -> list[JsonObject | None]:
        return self._book.run(self.transaction.values(names))

    def ids(self, collection: str) -> list[str]:
        return self._book.run(self.transaction.ids(collection))


class Collection(_Face, Generic[T]):
    """Objects of one type."""

    def __init__(self, book: boki.sync.Book, found: bokistore.Collection[T]) -> None:
        super().__init__(book)
        self.name: Final = found.name
        self._collection = found

    def create(self, id: str, value: T) -> None:
        self._book.run(self._collection.create(id, value))

    def put(self, id: str, value: T) -> None:
        self._book.run(self._collection.put(id, value))

    def delete(self, id: str) -> bool:
        return self._book.run(self._collection.delete(id))

    def get(self, id: str, *, at: int | None = None, consistency: ConsistencyName = "session") -> T | None:
        return self._book.run(self._collection.get(id, at=at, consistency=consistency))

    def ids(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> list[str]:
        return self._book.run(self._collection.ids(at=at, consistency=consistency))

    def scan(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> list[tuple[str, T]]:
        async def all_of() -> list[tuple[str, T]]:
            return [item async for item in self._collection.scan(at=at, consistency=consistency)]

        return self._book.run(all_of())


class BokiStore(_Face):
    """A store on the book of a blocking client."""

    def __init__(
        self, book: boki.sync.Book, *, settings: StoreSettings = DEFAULTS, hook: PayloadHook | None = None
    ) -> None:
        super().__init__(book)

        async def make(found: boki.Book) -> bokistore.BokiStore:
            return bokistore.BokiStore(found, settings=settings, hook=hook)

        self.store: Final = book.using(make)
        """The asynchronous one."""

    def object(self, name: str) -> StoreObject:
        return StoreObject(self._book, self.store.object(name))

    def collection(self, name: str, kind: type[T]) -> Collection[T]:
        return Collection(self._book, self.store.collection(name, kind))

    def delete(self, name: str) -> bool:
        return self._book.run(self.store.delete(name))

    def expire(self, name: str, at_ms: int | None) -> None:
        self._book.run(self.store.expire(name, at_ms))

    def sweep(self, names: Sequence[str] | None = None) -> list[str]:
        return self._book.run(self.store.sweep(names))

    def names(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> list[str]:
        return self._book.run(self.store.names(at=at, consistency=consistency))

    def values(
        self, names: Sequence[str], *, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> list[JsonObject | None]:
        return self._book.run(self.store.values(names, at=at, consistency=consistency))

    @contextmanager
    def transaction(
        self, *, isolation: Isolation | None = None, consistency: ConsistencyName = "session"
    ) -> Iterator[Transaction]:
        tx = self._book.run(self.store.begin(isolation=isolation, consistency=consistency))
        try:
            yield Transaction(self._book, tx)
        except BaseException:
            tx.end()
            raise
        self._book.run(self.store.commit(tx))

    def transact(self, body: Callable[Concatenate[Transaction, P], R], *args: P.args, **options: P.kwargs) -> R:
        return self.transactional()(body)(*args, **options)

    def transactional(
        self,
        *,
        isolation: Isolation | None = None,
        retries: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> Callable[[Callable[Concatenate[Transaction, P], R]], Callable[P, R]]:
        transactional = self.store.transactional(isolation=isolation, retries=retries, consistency=consistency)

        def decorate(body: Callable[Concatenate[Transaction, P], R]) -> Callable[P, R]:
            @wraps(body)
            def run(*args: P.args, **options: P.kwargs) -> R:
                def here(tx: bokistore.Transaction, within: tuple[Job[Any], ...]) -> R:
                    around = RUNNING.set(within)  # transactions that the body calls for are within this one
                    try:
                        return body(Transaction(self._book, tx), *args, **options)
                    finally:
                        RUNNING.reset(around)

                async def transact(_: boki.Book, caller: boki.sync.Caller) -> R:
                    @transactional
                    @wraps(body)
                    async def run_there(tx: bokistore.Transaction) -> R:
                        return await caller.call(partial(here, tx, RUNNING.get()))

                    return await run_there()

                return self._book.serving(transact)

            return run

        return decorate

    @contextmanager
    def snapshot(
        self, *, at: int | None = None, of: Sequence[str] = (), consistency: ConsistencyName = "session"
    ) -> Iterator[Snapshot]:
        async def take() -> bokistore.Snapshot:
            async with self.store.snapshot(at=at, of=of, consistency=consistency) as taken:
                return taken

        yield Snapshot(self._book, self._book.run(take()))

    @contextmanager
    def carrier(self, who: str, *, every_s: float = EVERY_S, carry_ms: int = REWRITE_MS) -> Iterator[None]:
        made = self.store.carrier(who, every_s=every_s, carry_ms=carry_ms)
        self._book.run(made.__aenter__())
        try:
            yield
        finally:
            self._book.run(made.__aexit__(None, None, None))

    def close(self) -> None:
        self._book.run(self.store.close())
