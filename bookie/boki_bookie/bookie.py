"""A bookie as a whole: lock, identity, replay, serve, register, watch the disk; and the same backwards.

It registers only when it serves, and stops serving when its store failed: `failed` then holds the error, connections end
without an answer, and the process should end (a restart replays the journal). A disk with too little space makes it
read-only: it moves to `available/readonly`, takes recovery adds, fences, reads and, from a reserve, control entries
(`space/disk_room`), and comes back by itself. A person makes it read-only, or has it drained, by its mark (`storage/drain`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from boki_bookie import metric_definitions
from boki_bookie.begin.identity import Identity, establish
from boki_bookie.begin.life import Life
from boki_bookie.entries.ledger_digests import LedgerDigests
from boki_bookie.entries.validation import LedgerValidation
from boki_bookie.serve.auth_gate import admitting
from boki_bookie.serve.backpressure import BackpressureLimits
from boki_bookie.serve.health import Reason
from boki_bookie.serve.server import BookieServer
from boki_bookie.settings import BookieSettings
from boki_bookie.space.ledger_facts import LedgerFacts
from boki_bookie.storage.drain import Drain
from boki_bookie.storage.limbo_review import LimboReview, OpenStorage, open_or_salvage
from boki_bookie.storage.storage import Storage
from boki_bookie.storage.storage_router import StorageRouter, directory_of
from boki_common.background_tasks import ends_only_with_its_owner
from boki_common.bookkeeper.bookie_mark import DRAINING, BookieMark, mark_path
from boki_common.bookkeeper.layout import bookie_path, register_bookie
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, MetadataError, SettingsError, StorageError, WrongDirectory
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.membership import Membership
from boki_common.metadata.store import MetadataStore, Watch
from boki_common.metrics import Metrics
from boki_common.net.connection import Address, FrameServer
from boki_common.net.strangers import BEFORE_FIRST_FRAME, BEFORE_HELLO
from boki_common.runtime.ports import Clock, Disk, Random

if TYPE_CHECKING:
    from boki_bookie.serve.admin import BookieAdmin

METADATA_PROBE_S: Final = 2.0
"""How long a question about health waits for the metadata store."""

_log = get_logger("bookie")


class _Shelf:
    """One data directory."""

    def __init__(self, disk: Disk, storage: Storage) -> None:
        self.disk = disk
        self.storage = storage
        self.is_full = False


class Bookie:
    """One running bookie; made by `start`. `failed` ends with the error that stopped it, never by `close`."""

    def __init__(
        self,
        shelves: Sequence[_Shelf],
        metadata: MetadataStore,
        identity: Identity,
        settings: BookieSettings,
        token: ClusterToken,
        look_now: asyncio.Event,
    ) -> None:
        self._token = token
        self._look_now = look_now
        """Ends the pause of the watch: a disk is full, or something else has changed."""
        self.bookie_id: BookieId = identity.bookie_id
        self.address = Address("", 0)
        self.failed: asyncio.Future[BokiError] = asyncio.get_running_loop().create_future()
        storages = [shelf.storage for shelf in shelves]
        self.storage: Storage | StorageRouter = storages[0] if len(storages) == 1 else StorageRouter(storages)
        self.admin: BookieAdmin | None = None
        """Its administration page, if the settings ask for one."""
        self.kept_read_only = False
        """An administrator wants no writes, or a drain, whatever the disk has."""
        self._drain: Drain
        self._shelves = shelves
        self._metadata = metadata
        self._settings = settings
        self._service = Address("", 0)
        self._server: FrameServer | None = None
        self._membership: Membership | None = None
        self._life: Life
        self._registered_read_only = False
        self._watch: asyncio.Task[None] | None = None
        self._marks: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._stack = AsyncExitStack()
        self._closed = False

    @classmethod
    async def start(
        cls,
        *,
        disk: Disk,
        metadata: MetadataStore,
        address: Address,
        clock: Clock,
        rng: Random,
        settings: BookieSettings | None = None,
        metrics: Metrics | None = None,
        more_disks: Sequence[Disk] = (),
        allowed_hosts: Sequence[str] = (),
        token: ClusterToken = NO_TOKEN,
    ) -> Bookie:
        """Starts a bookie on a directory, or on several; port 0 picks a free one, see `.address`.

        Args:
            disk: the directory; closed by `close`.
            metadata: started; stays the caller's.
            address: where to listen, TCP.
            clock, rng: wall time; for ids, tokens and salts.
            settings, metrics: defaults, and metrics of its own, when not given.
            more_disks: further directories, in the order in which they were formatted; closed by `close` too.
            allowed_hosts: names that Host may have at the administration page, see `host_rules`.
            token: of the cluster, asked of those who connect, and of the administration page.

        Raises:
            DirectoryInUse, WrongDirectory: see `identity`. CorruptData: names file and offset. SettingsError: the
            address is in use. NodeExists: another process is registered under this id. MetadataError, StorageError.
        """
        settings = settings or BookieSettings()
        metrics = metrics or Metrics()
        _check(settings, address)
        async with AsyncExitStack() as stack:
            disks = [disk, *more_disks]
            for one in disks:
                stack.push_async_callback(one.close)
                await one.lock()
            identity = await establish(
                disks,
                metadata,
                host=settings.host or address.host,
                rng=rng,
                replace_lost_disk=settings.replace_lost_disk,
                format_store=lambda one, raw: Storage.format(one, raw, rng, settings),
                salvage=settings.salvage,
            )
            digests = LedgerDigests(metadata, settings.check_digests, metrics)
            stack.push_async_callback(digests.close)
            look_now = asyncio.Event()
            open_storage = partial(Storage.open, metrics=metrics, clock=clock, digests=digests, disk_full=look_now)
            shelves = await _open_shelves(disks, identity, metadata, stack, open_storage, digests, rng, settings)
            bookie = cls(shelves, metadata, identity, settings, token, look_now)
            await bookie._begin_life(identity, rng)
            await bookie._begin_drain(rng)
            await bookie._serve(address, stack, metrics, clock, allowed_hosts)
            bookie._review_limbo(stack)
            bookie._stack = stack.pop_all()
        _log.info(
            "bookie is up", bookie_id=bookie.bookie_id, address=str(bookie.address), place=", ".join(identity.places)
        )
        return bookie

    async def close(self) -> None:
        """Unregisters, ends connections, stores what is in memory, gives the directory back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        await self._stack.aclose()
        _log.info("bookie is down", bookie_id=self.bookie_id)

    @property
    def read_only(self) -> bool:
        """Whether normal adds are refused: the disk is full, or an administrator has set it."""
        return self.storage.read_only

    async def _begin_life(self, identity: Identity, rng: Random) -> None:
        """Before anybody is served."""
        disks = [shelf.disk for shelf in self._shelves]
        self._life = await Life.begin(disks, self._metadata, identity, rng=rng, checkpoints=self._checkpoints())

    async def _begin_drain(self, rng: Random) -> None:
        """Before anybody is served, and after the cookie was written (`bookie_mark`)."""
        storages = [shelf.storage for shelf in self._shelves]
        self._drain = Drain(self._metadata, self.bookie_id, storages, rng, self._apply)
        await self._drain.begin()

    def _checkpoints(self) -> list[int]:
        return [shelf.storage.checkpoint_number for shelf in self._shelves]

    async def _serve(
        self, address: Address, stack: AsyncExitStack, metrics: Metrics, clock: Clock, allowed_hosts: Sequence[str]
    ) -> None:
        """Listens, registers, and begins to watch; `stack` undoes each."""
        requests = BookieServer(
            self.storage,
            requests_limit=self._settings.connection_requests,
            free_bytes=self.free_bytes,
            metrics=metrics,
            backpressure=BackpressureLimits(
                self._settings.connection_request_bytes,
                self._settings.connection_unsent_bytes,
                self._settings.slow_reader_timeout_s,
            ),
            clock=clock,
            bookie_id=self.bookie_id,
        )
        stack.push_async_callback(requests.close)
        self._server = await FrameServer.start(
            address,
            partial(admitting, requests, self._token),
            connections_limit=self._settings.connections,
            strangers=BEFORE_HELLO if self._token.asks else BEFORE_FIRST_FRAME,
        )
        stack.push_async_callback(self._server.close)
        self.address = self._server.address
        self._service = Address(self._settings.host or self.address.host, self._settings.port or self.address.port)
        storages = [shelf.storage for shelf in self._shelves]
        for definition, value in (
            (metric_definitions.CACHED_BYTES, lambda: self.storage.cached_bytes),
            (metric_definitions.LEDGERS, lambda: self.storage.ledger_count),
            (metric_definitions.READ_ONLY, lambda: self.storage.read_only),
            (metric_definitions.ELSEWHERE, lambda: sum(one.gc_state().elsewhere_ledgers for one in storages)),
            (metric_definitions.TOMBSTONES, lambda: sum(one.gc_state().tombstones for one in storages)),
        ):
            metrics.gauge(definition).labels(self.bookie_id).set_function(value)
        await self._look_at_space()
        stack.push_async_callback(self._unregister)
        await self._register()
        marks = self._metadata.watch(mark_path(self.bookie_id))
        stack.callback(marks.close)
        self._marks = asyncio.create_task(self._watch_mark(marks), name="bookie mark watch")
        self._watch = asyncio.create_task(self._watch_disk(), name="bookie disk watch")
        ends_only_with_its_owner(self._watch, self._watch_ended)
        stack.push_async_callback(self._end_watch)
        self.storage.failed.add_done_callback(lambda failed: self._stop(failed.result()))
        if self._settings.admin_port >= 0:
            from boki_bookie.serve.admin import BookieAdmin  # a web server, which most bookies need no memory for

            self.admin = BookieAdmin(
                self, self._settings, metrics, storages=storages, allowed_hosts=allowed_hosts, token=self._token
            )
            await self.admin.listen()
            stack.push_async_callback(self.admin.close)

    def _review_limbo(self, stack: AsyncExitStack) -> None:
        """Begins to look whether what was salvaged is repaired."""
        for number, shelf in enumerate(self._shelves):
            review = LimboReview(
                shelf.storage,
                self._metadata,
                self.bookie_id,
                interval_s=self._settings.limbo_check_interval_s,
                owns=partial(_lies_in, number, len(self._shelves)),
            )
            stack.push_async_callback(review.close)
            review.start()

    # -- for the administrator

    async def free_bytes(self) -> int:
        """What is left in all directories; a file system that several of them lie on counts once."""
        free: dict[str, int] = {}
        for shelf in self._shelves:
            free[await shelf.disk.device()] = await shelf.disk.free_bytes()
        return sum(free.values())

    async def reasons(self) -> list[Reason]:
        """Why it does not serve or does not take writes; asks the disk and the metadata store."""
        found: list[Reason] = []
        if self.failed.done():
            found.append(Reason("failed", f"the store failed, restart the bookie: {self.failed.result()}"))
        if "drain" in self.kept_by:
            found.append(Reason("draining", f"it is being drained: `boki drain --cancel {self.bookie_id}` ends that"))
        if "administrator" in self.kept_by:
            found.append(Reason("read_only", "an administrator made it read-only: DELETE /state/readonly ends that"))
        if any(shelf.is_full for shelf in self._shelves) or (self.storage.read_only and not self.kept_read_only):
            found.append(Reason("disk_full", "read-only: the disk is nearly full; it comes back when there is space"))
        path = bookie_path(self.bookie_id, read_only=self._registered_read_only)
        try:
            async with asyncio.timeout(METADATA_PROBE_S):
                registered = await self._metadata.exists(path)
        except (MetadataError, TimeoutError) as error:
            why = str(error) or f"nothing within {METADATA_PROBE_S} s"
            found.append(Reason("no_metadata", f"the metadata store does not answer: {why}"))
        else:
            if not registered and not self.failed.done():
                found.append(
                    Reason("not_registered", f"no {path} in the metadata store: clients do not find this bookie")
                )
        return found

    @property
    def kept_by(self) -> list[str]:
        """Why it takes no writes although its disk has room: "administrator", "drain"."""
        mark = self._drain.mark
        return ["administrator"] * mark.read_only + ["drain"] * (mark.state == DRAINING)

    async def keep_read_only(self, read_only: bool) -> None:
        """An administrator's word: no writes until it is taken back. It is in the mark of the bookie, and outlives restarts.
        Raises MetadataError."""
        await self._drain.keep_read_only(read_only)
        self._look_now.set()  # wakes the watch, which registers the bookie as what it is now

    async def _apply(self, mark: BookieMark) -> None:
        """Take or refuse adds as the mark says. Nothing is taken between the first line and the last that the mark refuses."""
        drains = mark.state == DRAINING
        read_only = drains or mark.read_only
        for shelf in self._shelves:
            shelf.storage.drains = drains
        await self._look_at_space()  # what the disk says, before the mark is mixed with it
        self.kept_read_only = read_only
        for shelf in self._shelves:
            shelf.storage.set_read_only(shelf.is_full or read_only)
        await self._look_at_space()  # the mark is for the reserve too

    # -- registration

    async def _register(self) -> None:
        """Registers as what the bookie is now: writable or read-only."""
        await self._unregister()
        read_only = self.storage.read_only
        self._membership = await register_bookie(self._metadata, self.bookie_id, self._service, read_only=read_only)
        self._registered_read_only = read_only

    async def _unregister(self) -> None:
        if self._membership is None:
            return
        membership, self._membership = self._membership, None
        try:
            await membership.leave()
        except MetadataError as error:
            _log.warning("not unregistered; the registration ends with the session", error=error)

    # -- the disk

    async def _watch_disk(self) -> None:
        """Looks at the space now and then, and when a checkpoint found none; keeps the registration in step."""
        while not self.failed.done():
            try:
                async with asyncio.timeout(self._settings.disk_check_interval_s):
                    await self._look_now.wait()
            except TimeoutError:
                pass  # time for a look
            was_full = self._look_now.is_set()
            self._look_now.clear()
            try:
                if not was_full or any(shelf.storage.room.look_due for shelf in self._shelves):
                    await self._look_at_space()
                if self._membership is None or self._registered_read_only != self.storage.read_only:
                    await self._register()
                await self._life.record(self._checkpoints())
                await self._drain.look()
                if self._registered_read_only != self.storage.read_only:
                    await self._register()
            except WrongDirectory as error:
                self._stop(error)
            except BokiError as error:
                _log.warning("the state of the bookie could not be recorded; trying again", error=error)

    async def _watch_mark(self, marks: Watch) -> None:
        """Wake the watch of the disk when the mark may have changed."""
        while not self.failed.done():
            await marks.changed()
            self._look_now.set()

    async def _look_at_space(self) -> None:
        for shelf in self._shelves:
            await self._look_at_shelf(shelf)

    async def _look_at_shelf(self, shelf: _Shelf) -> None:
        storage, settings = shelf.storage, self._settings
        free = await shelf.disk.free_bytes()
        left = free - storage.cached_bytes  # the rest will be taken by entries that are in the journal only
        if storage.read_only and not self.kept_read_only:
            shelf.is_full = True  # a checkpoint, or an add, found no space
        if shelf.is_full:
            storage.request_checkpoint()  # perhaps what is left suffices: the journal shrinks then
        if left < settings.read_only_below_bytes:
            shelf.is_full = True
        elif left >= settings.writable_above_bytes:
            shelf.is_full = False
        read_only = shelf.is_full or self.kept_read_only
        where = shelf.disk.describe()
        if read_only and not storage.read_only:
            why = "the disk is nearly full" if shelf.is_full else "an administrator said so"
            _log.warning("takes no writes", why=why, free_bytes=free, place=where, bookie_id=self.bookie_id)
        elif storage.read_only and not read_only:
            _log.info("takes writes again", free_bytes=free, place=where, bookie_id=self.bookie_id)
        storage.set_read_only(read_only)
        storage.room.measured(free, settings, unstored_bytes=storage.cached_bytes, reserve=not self.kept_read_only)

    # -- the end

    def _watch_ended(self, error: BaseException) -> None:
        """Stop a bookie that would not notice any more that its disk is full."""
        self._stop(error if isinstance(error, BokiError) else StorageError(f"the watch of the disk failed: {error!r}"))

    def _stop(self, error: BokiError) -> None:
        if self._closed or self.failed.done():
            return
        _log.error("the bookie stopped", bookie_id=self.bookie_id, error=error)
        self.failed.set_result(error)
        self._look_now.set()  # wakes the watch, which then ends
        assert self._server is not None
        self._ending = asyncio.ensure_future(self._stop_serving(self._server))

    async def _stop_serving(self, server: FrameServer) -> None:
        await server.close()
        await self._unregister()

    async def _end_watch(self) -> None:
        tasks = [task for task in (self._watch, self._marks) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _check(settings: BookieSettings, address: Address) -> None:
    faults = list(settings.faults())
    if address.path:
        faults.append(f"address: expected host:port, found {address}; clients find a bookie by host and port")
    if faults:
        raise SettingsError("; ".join(faults), faults=faults)


async def _open_shelves(
    disks: Sequence[Disk],
    identity: Identity,
    metadata: MetadataStore,
    stack: AsyncExitStack,
    open_storage: OpenStorage,
    digests: LedgerDigests,
    rng: Random,
    settings: BookieSettings,
) -> list[_Shelf]:
    """Opens the store of every directory; `stack` closes them."""
    shelves = []
    open_ours = partial(
        open_storage,
        bookie_id=identity.raw,
        validate=LedgerValidation(metadata, identity.bookie_id, settings, digests=digests),
        facts=LedgerFacts(metadata, identity.bookie_id, identity.instance_id),
        rng=rng,
        settings=settings,
    )
    for number, disk in enumerate(disks):
        storage = await open_or_salvage(
            disk,
            identity,
            metadata,
            open_storage=partial(open_ours, disk),
            rng=rng,
            settings=settings,
            owns=partial(_lies_in, number, len(disks)),
        )
        stack.push_async_callback(storage.close)
        shelves.append(_Shelf(disk, storage))
    return shelves


def _lies_in(number: int, directories: int, ledger_id: int) -> bool:
    return directories == 1 or directory_of(ledger_id, directories) == number
