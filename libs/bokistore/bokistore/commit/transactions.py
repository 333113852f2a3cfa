"""Transactions: reads of one snapshot with own writes on top, and writes that all happen or none.

    async with store.transaction() as tx:
        alice, bob = tx["alice"], tx["bob"]
        if await alice.get("balance", 0) >= 10:
            alice.inc("balance", -10)
            bob.inc("balance", 10)

A transaction appends one record, or none if it writes nothing. Its snapshot is open until its first read (`open_snapshot`). An operation
that is not possible raises at once if the object was read before; on an unread object it changes nothing. A block cannot run again, so
`store.transaction` raises Conflict; `store.transact` and `store.transactional` run their functions again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final, TypeVar, overload

from boki_common.errors import InvalidArgument
from bokilib.append.log import Log
from bokilib.ports import ConsistencyName
from bokilib.records.codec import Json, JsonObject
from bokilib.records.contribution import Contribution
from bokilib.records.isolation import Isolation
from bokistore.commit.open_snapshot import OpenSnapshot
from bokistore.commit.transaction_rules import (
    Context,
    Overlay,
    Staged,
    Staging,
    decode_read,
    decode_written,
    encode_context,
    encode_read,
    encode_written,
)
from bokistore.errors import InTransaction
from bokistore.model import directory_rules
from bokistore.model.directory_rules import Subject, check_object
from bokistore.model.events import AnyEvent, Commit, Deleted, Entry, Expires, Ops
from bokistore.model.fold import View, apply_all
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
from bokistore.read.snapshot_reads import Views, value_at, whole_value

NOTHING: Final = Overlay()
LATEST_MS: Final = (1 << 64) - 1
"""The latest expiry time: the largest integer of a record."""

T = TypeVar("T")


class Transaction:
    """A transaction that is open; see the module.

    Attributes:
        where: the snapshot.
        staging: its reads and writes.
        seqnum: its place in the log; 0 before it committed.
        reads: how many of its reads of the log are running.
    """

    def __init__(
        self,
        views: Views,
        isolation: Isolation,
        consistency: ConsistencyName = "session",
        *,
        trusting: bool = False,
        least: int = 0,
        overlay: Overlay = NOTHING,
        elsewhere: bool = False,
    ) -> None:
        """Begin a transaction; nothing is read yet.

        Args:
            views: cached reads of objects.
            isolation: its level.
            consistency: of its snapshot.
            trusting: whether cached views are read without a request; it runs again if one was old.
            least: the lowest place at which cached views count.
            overlay: writes of transactions that commit before it in the same record.
            elsewhere: whether it is a part of a transaction that began in another process (`BokiStore.within`).
        """
        self.where: Final = OpenSnapshot(isolation, views.log.book.position or 0, trusting=trusting, least=least)
        self.staging: Final = Staging(0, isolation)
        self.seqnum = 0
        self.reads = 0
        self._read_ended: asyncio.Future[None] | None = None
        self._views = views
        self._consistency: ConsistencyName = consistency
        self._trusting = trusting
        self._overlay = overlay
        self._elsewhere = elsewhere
        self._loaded: dict[str, View] = {}
        self._ended = False

    @property
    def log(self) -> Log:
        """The log of its store."""
        return self._views.log

    @property
    def snapshot(self) -> int:
        """The place where it reads; 0 while that is open."""
        return self.where.place

    def __getitem__(self, name: str) -> TxObject:
        """Return an object in this transaction."""
        return TxObject(self, name)

    # -- reading

    async def view(self, name: str) -> View:
        """Return an object as this transaction sees it."""
        (view,) = await self.views([name])
        return view

    async def views(self, names: Sequence[str]) -> list[View]:
        """Return objects as this transaction sees them, in one or two round trips."""
        self._check_open()
        missing = [name for name in dict.fromkeys(names) if name not in self._loaded]
        for base in await self._read(missing) if missing else ():
            self._loaded[base.name] = self.staging.with_own_writes(self._overlay.on(base))
        for name in names:
            self.staging.reads(name)
        return [self._loaded[name] for name in names]

    async def _read(self, names: Sequence[str]) -> list[View]:
        where, cache = self.where, self._views.cache
        while not where.fixed:
            known = {name: one for name in (*where.bases, *names) if (one := cache.get(name)) is not None}
            if where.take_known(names, known):
                return [where.bases[name] for name in names]
            await self._read_now(names)
        missing = [name for name in names if name not in where.bases]
        if missing:
            found = await self._reading(self._views.many(missing, where.place))
            where.bases.update({view.name: view for view in found})
        return [where.bases[name] for name in names]

    async def _read_now(self, names: Sequence[str]) -> None:
        """Read these objects and all earlier ones as of now, unless a concurrent read of this transaction came first."""
        where = self.where
        wanted = list(dict.fromkeys((*where.bases, *names)))
        place, views = await self._reading(self._views.as_of(wanted, self._consistency))
        if not where.fixed and where.bases.keys() <= set(wanted):
            where.take_read(place, views)

    async def fixed(self) -> int:
        """Fix the snapshot, and return its place."""
        while not self.where.fixed:
            await self._read_now(())
        return self.where.place

    async def values(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Many objects."""
        return [whole_value(view) for view in await self.views(names)]

    async def ids(self, collection: str) -> list[str]:
        """Return the ids of a collection, in order. A serializable transaction expects that none is added or removed."""
        self._check_open()
        found: set[str] = set()
        directory_rules.check_collection(collection)
        place = await self.fixed()
        for directory in await self._reading(self._views.directories(collection, place)):
            found |= directory_rules.after_events(directory, [*self._overlay.events, *self.staging.events]).ids
        self.staging.scans(collection)
        return sorted(found)

    async def bucket(self, subject: Subject) -> frozenset[str]:
        """Return the ids in one bucket of a collection's directory.

        Nothing is expected of the bucket: an id in it is protected by the expectation on its object.
        """
        self._check_open()
        place = await self.fixed()
        directory = await self._reading(self._views.directory(subject, place))
        return directory_rules.after_events(directory, [*self._overlay.events, *self.staging.events]).ids

    # -- writing

    def operate(self, name: str, operation: AnyOperation) -> None:
        """Change an object. Raises InvalidArgument; OperationFailed: the object was read, and the operation is not possible."""
        self._check_open()
        check_object(name)
        operation = checked(operation)
        view = self._loaded.get(name)
        if view is not None:
            after, (result,) = apply_all(view, [operation])
            if isinstance(result, Failed):
                raise result.error(name)
            self._loaded[name] = after
        self.staging.operates(name, operation)

    def send(self, name: str, *operations: AnyOperation) -> None:
        """Change an object in the same record without a condition: concurrent changes of it cause no conflict. Raises InvalidArgument.

        An operation that is not possible then changes nothing, and does not undo the rest.
        """
        self._check_open()
        if not operations:
            raise InvalidArgument("expected one operation at least, found none")
        check_object(name)
        self.staging.sends(name, [checked(one) for one in operations])
        self._again(name)

    def delete(self, name: str) -> None:
        """Delete an object. Later operations of this transaction create it again."""
        self._check_open()
        check_object(name)
        self.staging.deletes(name)
        self._again(name)

    def expire(self, name: str, at_ms: int | None) -> None:
        """Let an object expire once the log's clock is past `at_ms`; None: never. Raises InvalidArgument."""
        self._check_open()
        check_object(name)
        if at_ms is not None and (type(at_ms) is not int or not 0 <= at_ms <= LATEST_MS):
            raise InvalidArgument(f"expected milliseconds since 1970, or None, found {at_ms!r}", found=at_ms)
        self.staging.expires(name, at_ms)
        self._again(name)

    def enter(self, collection: str, id: str, *, there: bool) -> None:
        """Add a name to a collection, or remove it. For `Collection`."""
        self._check_open()
        self.staging.enters(collection, id, there=there)

    def add(self, part: Contribution) -> None:
        """Add another library's part of the record. If a stream that it expects moved, the transaction ends and does not run again.

        Raises:
            InvalidArgument: it is no contribution, or this is a part of a transaction of another workflow.
            WrongBook: it is for another book than the store.
        """
        self._check_open()
        self.log.check_part(part)
        if self._elsewhere:
            raise InvalidArgument(
                "expected a contribution in the transaction that called this workflow, found one in the called part, of which only reads "
                "and writes of objects go back to it: return what it needs, and add the contribution there"
            )
        self.staging.adds(part)

    # -- parts of it that run elsewhere

    async def context(self) -> bytes:
        """Return the context from which a part of this transaction begins in another process (`BokiStore.within`)."""
        self._check_open()
        place = await self.fixed()
        return encode_context(
            Context(place, self.staging.isolation, (*_staged(self._overlay.events), *_staged(self.staging.events)))
        )

    def part(self) -> tuple[bytes, bytes]:
        """Return the reads and writes of this part, encoded for the process that began the transaction."""
        return encode_read(self.staging.read_streams), encode_written(self.staging.events)

    def take(self, read: bytes, written: bytes) -> None:
        """Add the encoded reads and writes of a part. A part that failed has only reads."""
        self._check_open()
        events = decode_written(written)
        self.staging.takes(decode_read(read), events)
        for name in dict.fromkeys(event.name for event in events if not isinstance(event, Entry)):
            self._again(name)

    def _again(self, name: str) -> None:
        base = self.where.bases.get(name)
        if base is not None:
            self._loaded[name] = self.staging.with_own_writes(self._overlay.on(base))

    def _check_open(self) -> None:
        if self._ended:
            raise InTransaction("this transaction has ended: begin another one")

    async def _reading(self, read: Awaitable[T]) -> T:
        self.reads += 1
        try:
            return await read
        finally:
            self.reads -= 1
            if self._read_ended is not None and not self.reads:
                self._read_ended.set_result(None)
                self._read_ended = None

    # -- for the room that commits it

    def read_ended(self) -> asyncio.Future[None]:
        """Return what is done once none of its reads is under way."""
        if self._read_ended is None:
            self._read_ended = asyncio.get_running_loop().create_future()
            if not self.reads:
                self._read_ended.set_result(None)
        return self._read_ended

    def end(self) -> None:
        """Refuse all further reads and writes."""
        self._ended = True

    async def placed(self, *, proven: bool = False) -> None:
        """Fix the place from which the record expects its streams unchanged.

        A transaction that read nothing takes the place of now, or the session's position if it trusts the cache.

        Args:
            proven: whether the outcome must not rest on cached views alone: then the log is read.
        """
        where = self.where
        if proven and where.bases:
            await self.fixed()
        elif not where.place:
            now = self._views.log.book.now(consistency="any" if self._trusting else self._consistency)
            where.fix(await self._reading(now))
        self.staging.snapshot = where.place
        cache, written = self._views.cache, self.staging.written
        unread = [name for name in written if name not in where.bases and name not in self.staging.elsewhere]
        known = {name: one for name in unread if (one := cache.get(name)) is not None}
        self.staging.unseen.update(where.take_unseen(unread, known))


def _staged(events: Sequence[AnyEvent]) -> list[Staged]:
    return [event for event in events if isinstance(event, Ops | Commit | Deleted | Expires | Entry)]


class TxObject:
    """An object in a transaction: reads are awaited, writes are staged until it commits."""

    def __init__(self, transaction: Transaction, name: str) -> None:
        self.name: Final = name
        self._tx = transaction

    def __repr__(self) -> str:
        return f"<bokistore.TxObject {self.name!r}>"

    @overload
    async def get(self, path: str = "", default: Json = None) -> Json: ...

    @overload
    async def get(self, path: str = "", default: None = None, *, type: type[T]) -> T | None: ...

    @overload
    async def get(self, path: str, default: T, *, type: type[T]) -> T: ...

    async def get(self, path: str = "", default: Any = None, *, type: type[Any] | None = None) -> Any:
        """Return the value at a path, own writes included, or the default. With `type`, as `StoreObject.get`."""
        return value_at(await self._tx.view(self.name), path, default, type)

    async def value(self) -> JsonObject | None:
        """Return the whole object, or None if it does not exist."""
        return whole_value(await self._tx.view(self.name))

    async def exists(self) -> bool:
        """Return whether the object exists."""
        return (await self._tx.view(self.name)).exists

    def set(self, path: str, value: Json) -> None:
        """Set the value at a path."""
        self._tx.operate(self.name, Set(path, value))

    def make_object(self, path: str) -> None:
        """Create an empty object at a path, unless there is one."""
        self._tx.operate(self.name, MakeObject(path))

    def make_array(self, path: str) -> None:
        """Create an empty array at a path, unless there is one."""
        self._tx.operate(self.name, MakeArray(path))

    def push(self, path: str, value: Json, *, limit: int | None = None) -> None:
        """Append to an array; with a limit, items are dropped from its head."""
        self._tx.operate(self.name, Push(path, value, limit))

    def pop(self, path: str) -> None:
        """Remove the last item of an array; read it before."""
        self._tx.operate(self.name, Pop(path))

    def inc(self, path: str, delta: int | float = 1) -> None:
        """Add to a number."""
        self._tx.operate(self.name, Inc(path, delta))

    def delete(self, path: str) -> None:
        """Remove the value at a path."""
        self._tx.operate(self.name, Delete(path))

    def merge(self, path: str, patch: JsonObject) -> None:
        """Merge a patch (RFC 7386)."""
        self._tx.operate(self.name, Merge(path, patch))
