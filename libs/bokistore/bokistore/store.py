"""A store of JSON objects on one LogBook: see the package.

    store = BokiStore(client.book("shop"))
    await store.object("x").inc("n")
    await store.transact(move, "alice", "bob", 10)

Everything of a store is in its book: any number of processes may use one at a time, and a process that ends leaves nothing undone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

import msgspec

from boki_common.errors import InvalidArgument
from boki_common.unpickled import Unpickled
from bokilib.append.log import Log, Tokens
from bokilib.ports import BookPort, ConsistencyName, PayloadHook
from bokilib.records.arguments import check_seconds, check_whole
from bokilib.records.codec import JsonObject
from bokilib.records.contribution import check_in_book, joined
from bokilib.records.isolation import Isolation, check_isolation
from bokilib.retention.carrier import EVERY_S, Carrier, Carries
from bokilib.retention.checkpoint_rules import (
    BYTES_BETWEEN,
    FORGET_MS,
    GRACE_MS,
    RECORDS_BETWEEN,
    RETENTION_MS,
    REWRITE_MS,
)
from bokistore.commit.group_commit import RETRIES, GroupCommit
from bokistore.commit.jobs import Staged
from bokistore.commit.transaction_rules import Overlay, decode_context, decode_written
from bokistore.commit.transactions import Transaction
from bokistore.errors import NoSuchObject
from bokistore.objects import Collection, StoreObject
from bokistore.read import inspection
from bokistore.read.snapshot_reads import Snapshot, Views, whole_value
from bokistore.read.view_cache import CACHED_VIEWS
from bokistore.retention.checkpointer import Checkpointer
from bokistore.retention.upkeep import StoreCarried, Upkeep, delete_with_entry, sweep_all

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class StoreSettings(msgspec.Struct, frozen=True):
    """Settings of a store. Processes of one store should agree on ages; the other settings are each process's own.

    Attributes:
        isolation: the level of transactions that name none.
        retries: how often a transaction runs again after a conflict.
        cached_views: how many objects this process keeps in memory. 0: none.
        followed_objects: how many frequently read objects this process follows, to read them from memory. 0: none.
        followed_within_s: a read from memory returns nothing older than a read of the log would have returned this many seconds earlier.
        aux_data: whether views are stored as aux data of records, for other processes.
        checkpoints: whether this process makes checkpoints of objects that it sees change, and trims the records that they replace.
        checkpoint_records: a checkpoint is due when this many records lie above the last one.
        checkpoint_bytes: a checkpoint is due when this many bytes lie above the last one.
        grace_ms: how old a snapshot may be, and how long the body of a transaction may run.
        retention_ms: for how long deleted objects are remembered.
        forget_ms: how old a stream must be before the log forgets it.
    """

    isolation: Isolation = "serializable"
    retries: int = RETRIES
    cached_views: int = CACHED_VIEWS
    followed_objects: int = 0
    followed_within_s: float = 1.0
    aux_data: bool = True
    checkpoints: bool = True
    checkpoint_records: int = RECORDS_BETWEEN
    checkpoint_bytes: int = BYTES_BETWEEN
    grace_ms: int = GRACE_MS
    retention_ms: int = RETENTION_MS
    forget_ms: int = FORGET_MS

    def __post_init__(self) -> None:
        """Check the settings, but the isolation, which `BokiStore` checks. Raises InvalidArgument."""
        for name in ("retries", "cached_views", "followed_objects", "retention_ms", "forget_ms"):
            check_whole(f"{name}=", getattr(self, name))
        for name in ("checkpoint_records", "checkpoint_bytes", "grace_ms"):
            check_whole(f"{name}=", getattr(self, name), 1)
        check_seconds("followed_within_s=", self.followed_within_s)


DEFAULTS: Final = StoreSettings()


class BokiStore(Unpickled):
    """A store of JSON objects on one book; see the module. It belongs to the event loop of its book.

    Attributes:
        log: the log of the book; libraries that share it commit in the same records.
        settings: how the store works.
        views: cached reads of objects, for tools.
        checkpointer: checkpoints and trims, for tools.
    """

    def __init__(
        self,
        book: BookPort | Log,
        *,
        settings: StoreSettings = DEFAULTS,
        hook: PayloadHook | None = None,
        random: Tokens | None = None,
    ) -> None:
        """Open a store; nothing is read or written.

        Args:
            book: a `boki.Book`, or the `bokilib.Log` of one.
            settings: how the store works.
            hook: compresses, encrypts or stores payloads elsewhere. Not allowed beside a `Log`, which has its own.
            random: source of the incarnation; by default the machine's.

        Raises:
            InvalidArgument: an unknown isolation level, or a hook or random beside a `Log`.
        """
        check_isolation(settings.isolation)
        if isinstance(book, Log) and (hook is not None or random is not None):
            raise InvalidArgument("expected hook= and random= where the Log is made, found them beside one")
        self.log: Final = book if isinstance(book, Log) else Log(book, hook=hook, random=random)
        self.settings: Final = settings
        self.views: Final = Views(
            self.log,
            cached=settings.cached_views,
            aux=settings.aux_data,
            followed=settings.followed_objects,
            followed_within_s=settings.followed_within_s,
        )
        self.checkpointer: Final = Checkpointer(
            self.views,
            grace_ms=settings.grace_ms,
            retention_ms=settings.retention_ms,
            forget_ms=settings.forget_ms,
        )
        self._upkeep = Upkeep(
            self.checkpointer,
            records=settings.checkpoint_records,
            size=settings.checkpoint_bytes,
            on=settings.checkpoints,
        )
        self.views.due, self.views.due_directory = self._upkeep.saw, self._upkeep.saw_directory
        self._commits = GroupCommit(
            self.views,
            isolation=settings.isolation,
            retries=settings.retries,
            limit_s=settings.grace_ms / 1_000,
            committed=self._upkeep.committed,
        )

    # -- objects

    def object(self, name: str) -> StoreObject:
        """Return the object of this name, which need not exist. Raises InvalidArgument."""
        return StoreObject(self.views, name)

    def collection(self, name: str, kind: type[T]) -> Collection[T]:
        """Return a collection of objects of one type. Raises InvalidArgument."""
        return Collection(self._commits, name, kind)

    async def delete(self, name: str) -> bool:
        """Delete an object that is in no collection; return whether it existed."""

        async def body(tx: Transaction) -> bool:
            if not (await tx.view(name)).exists:
                return False
            tx.delete(name)
            return True

        return await self.transact(body)

    async def expire(self, name: str, at_ms: int | None) -> None:
        """Let an object expire once the log's clock is past `at_ms`; None: never. Raises NoSuchObject.

        Operations on the object keep its expiry, `set` of the whole object too. A deletion clears it, and so does `put` of a collection.
        """

        async def body(tx: Transaction) -> None:
            if not (await tx.view(name)).exists:
                raise NoSuchObject(f"there is no object {name!r}", object=name)
            tx.expire(name, at_ms)

        await self.transact(body)

    async def sweep(self, names: Sequence[str] | None = None) -> list[str]:
        """Delete expired objects, of these names or of the whole store; return their names. A carrier does this once a round."""
        now_ms = await self.checkpointer.now_ms()
        if names is None:
            return await sweep_all(self._commits, now_ms)
        swept = []
        for view in await self.views.many(names):
            if view.expires_ms is not None and view.expires_ms <= now_ms and await self._expired(view.name, now_ms):
                swept.append(view.name)
        return swept

    async def _expired(self, name: str, now_ms: int) -> bool:
        async def body(tx: Transaction) -> bool:
            at_ms = (await tx.view(name)).expires_ms
            if at_ms is None or at_ms > now_ms:
                return False
            await delete_with_entry(tx, name)
            return True

        return await self.transact(body)

    async def values(
        self, names: Sequence[str], *, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> list[JsonObject | None]:
        """Return many objects of one snapshot, in one or two round trips."""
        return [whole_value(view) for view in await self.views.many(names, at, consistency)]

    async def names(self, *, at: int | None = None, consistency: ConsistencyName = "session") -> list[str]:
        """Return the names of all existing objects, in order.

        It reads the whole book, which suits tools; programs keep a collection instead.
        """
        return await inspection.names(self.views, at, consistency)

    # -- transactions

    async def transact(
        self,
        body: Callable[Concatenate[Transaction, P], Awaitable[R]],
        *args: P.args,
        **options: P.kwargs,
    ) -> R:
        """Run `body(tx, *args)` as a transaction, again after each conflict; return what it returned.

        The body may run several times, so its side effects outside of `tx` happen each time. Transactions that a store runs at the same
        time commit as one record.

        Raises:
            Conflict: it lost more often than `retries` allows.
            AppendUnknown: it may have committed. After every other error nothing was committed.
            TransactionTimeout: the body ran for longer than `grace_ms`.
            Exception: whatever the body raised.
        """
        return await self.transactional()(body)(*args, **options)

    def transactional(
        self,
        *,
        isolation: Isolation | None = None,
        retries: int | None = None,
        consistency: ConsistencyName = "session",
    ) -> Callable[[Callable[Concatenate[Transaction, P], Awaitable[R]]], Callable[P, Awaitable[R]]]:
        """Make a transaction of a function that takes one: `@store.transactional()`. See `transact`.

        Args:
            isolation: "serializable" or "snapshot"; default: the store's.
            retries: how often it runs again after a conflict; default: the store's.
            consistency: of the snapshot that it reads.
        """
        check_isolation(isolation or self.settings.isolation)

        def decorate(body: Callable[Concatenate[Transaction, P], Awaitable[R]]) -> Callable[P, Awaitable[R]]:
            @wraps(body)
            async def run(*args: P.args, **options: P.kwargs) -> R:
                return await self._commits.run(
                    lambda tx: body(tx, *args, **options),
                    name=getattr(body, "__qualname__", type(body).__qualname__),
                    isolation=isolation,
                    retries=retries,
                    consistency=consistency,
                )

            return run

        return decorate

    def stage(self, body: Callable[[Transaction], Awaitable[R]], *, name: str = "") -> Staged[R]:
        """Run a transaction that commits once its owner adds a part of its own, as a workflow step does. See `jobs.Staged`."""
        return self._commits.stage(body, name=name)

    @asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation | None = None, consistency: ConsistencyName = "session"
    ) -> AsyncIterator[Transaction]:
        """Commit a transaction when the block is left. It never runs again: leaving the block raises Conflict if it lost."""
        tx = await self.begin(isolation=isolation, consistency=consistency)
        try:
            yield tx
        except BaseException:
            tx.end()
            raise
        await self.commit(tx)

    async def begin(
        self, *, isolation: Isolation | None = None, consistency: ConsistencyName = "session"
    ) -> Transaction:
        """Begin a transaction for `commit`; `async with store.transaction()` does both."""
        tx = Transaction(self.views, check_isolation(isolation or self.settings.isolation), consistency)
        await tx.fixed()
        return tx

    def within(self, context: bytes, written: Sequence[bytes]) -> Transaction:
        """Return a part of a transaction that began in another process (`Transaction.context`).

        The part is not committed here; its `tx.part()` is sent back to the process that began it. It takes no contributions (`tx.add`).

        Args:
            context: what `Transaction.context` returned.
            written: writes of earlier parts, which ran after that context was made.
        """
        begun = decode_context(context)
        overlay = Overlay()
        overlay.add(begun.events)
        for events in written:
            overlay.add(decode_written(events))
        tx = Transaction(self.views, begun.isolation, overlay=overlay, elsewhere=True)
        tx.where.fix(begun.place)
        return tx

    async def commit(self, tx: Transaction) -> int:
        """Append the writes of a transaction, if there are any; return their seqnum, or 0.

        Raises:
            Conflict: an object that it expects unchanged has changed.
            AppendUnknown: it may have committed.
            AtomicTooLarge: it does not fit into one record.
            WrongBook: a store of another book began it.
        """
        check_in_book("a transaction", tx.log.identity, self.log.origin("this store"))
        tx.end()
        await tx.placed()
        staging = tx.staging
        if not staging.empty:
            part = joined([staging.contribution(), *staging.extra])
            tx.seqnum = await self.log.append(part)
            self._upkeep.committed(staging.events)
            self.views.cached.committed(tx.seqnum, part, staging.events, tx.where.bases.values())
        return tx.seqnum

    @asynccontextmanager
    async def snapshot(
        self, *, at: int | None = None, of: Sequence[str] = (), consistency: ConsistencyName = "session"
    ) -> AsyncIterator[Snapshot]:
        """Open a consistent view of the whole store as of now, or of a seqnum. It appends nothing.

        Args:
            at: the seqnum to read at; default: now.
            of: names of objects that will be read, if they are known; they arrive in the round trip of the snapshot.
            consistency: how recent "now" has to be, as in `boki.Book.read_next`.
        """
        known = await self.views.check_at(at)
        place, views = (known, []) if known else await self.views.as_of(of, consistency)
        yield Snapshot(self.views, place, views)

    # -- upkeep

    async def tend(self, name: str) -> int:
        """Make a checkpoint of an object and trim the records that it replaces; return its seqnum, 0 if none was due."""
        made = await self.checkpointer.checkpoint(name)
        await self.checkpointer.trim(name)
        return made

    def carried(self) -> Carries:
        """Return this store's part in a `bokilib.Carrier` of several libraries."""
        return StoreCarried(self.checkpointer, self.sweep)

    def carrier(self, who: str, *, every_s: float = EVERY_S, carry_ms: int = REWRITE_MS) -> Carrier:
        """Return a carrier that reclaims storage: `async with store.carrier("host-7"): ...`.

        It may run in one process or in all; one of them works at a time. It rewrites idle state before that is two days old, so old terms
        can be deleted, deletes expired objects, and forgets deletions after `retention_ms`.
        """
        return Carrier(self.log, [self.carried()], who=who, every_s=every_s, carry_ms=carry_ms)

    async def close(self) -> None:
        """Stop following objects and wait for running checkpoints. A program that skips this loses nothing."""
        await self.views.close()
        await self._upkeep.close()
