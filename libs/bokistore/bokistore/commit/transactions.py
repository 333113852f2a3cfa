"""A transaction: reads of one snapshot with its own writes on top, and writes that happen together or not at all.

    async with store.transaction() as tx:
        alice, bob = tx["alice"], tx["bob"]
        if await alice.get("balance", 0) >= 10:
            alice.inc("balance", -10)
            bob.inc("balance", 10)

One append, and none if nothing was written. Where it reads is open until it is known what it reads (`open_snapshot`).
An operation that cannot be done raises at once if the object was read before; on
one that was not read it changes nothing, as everywhere in the log. What cannot be done again (a body that is left) raises
Conflict: `store.transact` and `store.transactional` run theirs again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from boki_common.errors import InvalidArgument
from bokilib.ports import ConsistencyName
from bokilib.records.codec import Json, JsonObject
from bokilib.records.contribution import Contribution
from bokilib.records.isolation import Isolation
from bokistore.commit.open_snapshot import OpenSnapshot
from bokistore.commit.shared_parts import (
    Context,
    Staged,
    decode_read,
    decode_written,
    encode_context,
    encode_read,
    encode_written,
)
from bokistore.commit.transaction_rules import Overlay, Staging
from bokistore.errors import InTransaction
from bokistore.model import directory_rules
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
from bokistore.model.subjects import Subject
from bokistore.read.snapshot import value_at, whole_value
from bokistore.read.snapshot_reads import Views

NOTHING: Final = Overlay()

T = TypeVar("T")


class Transaction:
    """See the module.

    Attributes:
        where: it reads. seqnum: where it is in the log, 0 before. reads: how many of its reads of the log are under way.
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
    ) -> None:
        """
        Args:
            consistency: of its snapshot. trusting: what is known here, as of `least` or above, is read without a request: it is run
                again if that was old. overlay: what transactions wrote that are to commit before it, in the same record.
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
        self._loaded: dict[str, View] = {}
        self._ended = False

    @property
    def snapshot(self) -> int:
        """Where it reads, 0 as long as that is open."""
        return self.where.place

    def __getitem__(self, name: str) -> TxObject:
        """An object in this transaction."""
        return TxObject(self, name)

    # -- reading

    async def view(self, name: str) -> View:
        """An object as this transaction sees it."""
        (view,) = await self.views([name])
        return view

    async def views(self, names: Sequence[str]) -> list[View]:
        """Objects as this transaction sees them, in one or two round trips."""
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
        """Reads these and all that was read before, as of now; unless another read of this transaction was faster."""
        where = self.where
        wanted = list(dict.fromkeys((*where.bases, *names)))
        place, views = await self._reading(self._views.as_of(wanted, self._consistency))
        if not where.fixed and where.bases.keys() <= set(wanted):
            where.take_read(place, views)

    async def fixed(self) -> int:
        """Where it reads, from now on."""
        while not self.where.fixed:
            await self._read_now(())
        return self.where.place

    async def values(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Many objects."""
        return [whole_value(view) for view in await self.views(names)]

    async def ids(self, collection: str) -> list[str]:
        """The ids of a collection, in order. A serializable transaction then expects that none comes or goes."""
        self._check_open()
        found: set[str] = set()
        directory_rules.check_collection(collection)
        place = await self.fixed()
        for directory in await self._reading(self._views.directories(collection, place)):
            found |= directory_rules.after_events(directory, [*self._overlay.events, *self.staging.events]).ids
        self.staging.scans(collection)
        return sorted(found)

    async def bucket(self, subject: Subject) -> frozenset[str]:
        """The ids in one bucket of a collection's directory. It expects nothing of it: the object of an id that is there stands for it."""
        self._check_open()
        place = await self.fixed()
        directory = await self._reading(self._views.directory(subject, place))
        return directory_rules.after_events(directory, [*self._overlay.events, *self.staging.events]).ids

    # -- writing

    def operate(self, name: str, operation: AnyOperation) -> None:
        """Changes an object. Raises OperationFailed, if the object was read and it cannot be done; InvalidArgument."""
        self._check_open()
        operation = checked(operation)
        view = self._loaded.get(name)
        if view is not None:
            after, (result,) = apply_all(view, [operation])
            if isinstance(result, Failed):
                raise result.error(name)
            self._loaded[name] = after
        self.staging.operates(name, operation)

    def send(self, name: str, *operations: AnyOperation) -> None:
        """Changes an object in the same record, whatever it is by then: who else changes it makes nobody lose. Raises InvalidArgument.

        What cannot be done then changes nothing, and does not undo the rest.
        """
        self._check_open()
        if not operations:
            raise InvalidArgument("expected one operation at least, found none")
        self.staging.sends(name, [checked(one) for one in operations])
        self._again(name)

    def delete(self, name: str) -> None:
        """Ends an object. What follows in this transaction makes it anew."""
        self._check_open()
        self.staging.deletes(name)
        self._again(name)

    def expire(self, name: str, at_ms: int | None) -> None:
        """The object may be deleted once the clock of the log is past `at_ms`; None: never. Raises InvalidArgument."""
        self._check_open()
        if at_ms is not None and (type(at_ms) is not int or at_ms < 0):
            raise InvalidArgument(f"expected milliseconds since 1970, or None, found {at_ms!r}", found=at_ms)
        self.staging.expires(name, at_ms)
        self._again(name)

    def enter(self, collection: str, id: str, *, there: bool) -> None:
        """For collections: a name begins or ends to be there."""
        self._check_open()
        self.staging.enters(collection, id, there=there)

    def add(self, part: Contribution) -> None:
        """Another library's part of the record. If what it expects moved, the transaction is over, and not run again."""
        self._check_open()
        self.staging.adds(part)

    # -- parts of it that run elsewhere

    async def context(self) -> bytes:
        """What a part of this transaction that runs elsewhere begins with (`BokiStore.within`)."""
        self._check_open()
        place = await self.fixed()
        return encode_context(
            Context(place, self.staging.isolation, (*_staged(self._overlay.events), *_staged(self.staging.events)))
        )

    def part(self) -> tuple[bytes, bytes]:
        """What this one, which is such a part, read and wrote."""
        return encode_read(self.staging.read_streams), encode_written(self.staging.events)

    def take(self, read: bytes, written: bytes) -> None:
        """What such a part read and wrote is read and written here. Of one that failed it is what it read."""
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
        """Nothing more is read or written."""
        self._ended = True

    async def placed(self, *, proven: bool = False) -> None:
        """Nothing more is read: what it expects is of where it read; if it read nothing, of now, or of what is seen.

        Args:
            proven: no append will prove what was read: the log is read, if it was not.
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
    """An object in a transaction: reads are awaited, writes are kept until it commits."""

    def __init__(self, transaction: Transaction, name: str) -> None:
        self.name: Final = name
        self._tx = transaction

    def __repr__(self) -> str:
        return f"<bokistore.TxObject {self.name!r}>"

    async def get(self, path: str = "", default: Json = None) -> Json:
        """What is at a path, own writes included."""
        return value_at(await self._tx.view(self.name), path, default)

    async def value(self) -> JsonObject | None:
        """The object, None if there is none."""
        return whole_value(await self._tx.view(self.name))

    async def exists(self) -> bool:
        """Whether there is one."""
        return (await self._tx.view(self.name)).exists

    def set(self, path: str, value: Json) -> None:
        """Puts a value."""
        self._tx.operate(self.name, Set(path, value))

    def make_object(self, path: str) -> None:
        """Makes an object, unless there is one."""
        self._tx.operate(self.name, MakeObject(path))

    def make_array(self, path: str) -> None:
        """Makes an array, unless there is one."""
        self._tx.operate(self.name, MakeArray(path))

    def push(self, path: str, value: Json, *, limit: int | None = None) -> None:
        """Appends to an array; with a limit, drops from its head."""
        self._tx.operate(self.name, Push(path, value, limit))

    def pop(self, path: str) -> None:
        """Drops the last of an array; read it before."""
        self._tx.operate(self.name, Pop(path))

    def inc(self, path: str, delta: int | float = 1) -> None:
        """Adds to a number."""
        self._tx.operate(self.name, Inc(path, delta))

    def delete(self, path: str) -> None:
        """Removes what is at a path."""
        self._tx.operate(self.name, Delete(path))

    def merge(self, path: str, patch: JsonObject) -> None:
        """Merges a patch (RFC 7386)."""
        self._tx.operate(self.name, Merge(path, patch))
