"""A bookie's surroundings in memory: settings that make everything tiny, seeded randomness, requests as clients send them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from boki_bookie.bookie import Bookie
from boki_bookie.entries.entry_log import file_name
from boki_bookie.entries.ledger_index import Place
from boki_bookie.entries.tombstones import DAY_MS
from boki_bookie.journal.journal import Journal
from boki_bookie.settings import BookieSettings
from boki_bookie.space.garbage_collection import GcState
from boki_bookie.space.ledger_facts import LedgerFacts
from boki_bookie.storage.storage import Storage
from boki_bookie.storage.storage_router import StorageRouter
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState, decode, encode
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import AddRequest, EntryHeader, decode_request, encode_add
from boki_common.errors import BokiError, NoNode, StorageError
from boki_common.ids import BookieId
from boki_common.limits import KIB
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.metadata.store import Versioned
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.ports import Disk
from boki_common.testing.machine import ManualClock, SeededRandom

T = TypeVar("T")
VECTORS: Final = Path(__file__).parents[2] / "common/tests/vectors/bookkeeper"

TINY = BookieSettings(
    journal_segment_bytes=16 * KIB,
    journal_group_bytes=8 * KIB,
    write_cache_bytes=1024 * KIB,
    entry_log_bytes=16 * KIB,
    checkpoint_interval_s=3_600.0,
    disk_check_interval_s=3_600.0,
    read_only_below_bytes=0,
    writable_above_bytes=0,
    validation_retry_for_s=0.0,
    gc_interval_s=3_600.0,
    disk_reserve_bytes=0,
)
RAW_ID = bytes(range(16))
LOCAL = Address("127.0.0.1", 0)
BOOKIE_ID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


class Answers:
    """Hears late answers of a storage."""

    def __init__(self) -> None:
        self.replies: list[tuple[V2Status, int, int]] = []
        self.changed = asyncio.Event()

    def add_answered(self, status: V2Status, ledger_id: int, entry_id: int) -> None:
        self.replies.append((status, ledger_id, entry_id))
        self.changed.set()

    async def next(self) -> V2Status:
        while not self.replies:
            await self.changed.wait()
            self.changed.clear()
        return self.replies.pop(0)[0]


class World:
    """Makes what a test needs and closes it afterwards."""

    settings = TINY
    raw_id = RAW_ID
    key = master_key(b"")
    other_key = master_key(b"other")
    rng = SeededRandom()
    clock = ManualClock(1_700_000_000_000)

    def __init__(self) -> None:
        self.validations: dict[int, V2Status] = {}
        self.looks: list[int] = []
        self.validate_after: asyncio.Event | None = None
        """What the metadata store waits for, if it is slow."""
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.opened: list[Journal] = []
        """What tests opened by themselves."""
        self._opened: list[tuple[Storage, MemoryDisk]] = []

    @staticmethod
    def seeded(seed: int) -> SeededRandom:
        return SeededRandom(seed)

    def tiny(self, **changes: Any) -> BookieSettings:
        return dataclasses.replace(TINY, **changes)

    def body(
        self,
        ledger_id: int,
        entry_id: int,
        payload: bytes = b"payload",
        *,
        lac: int | None = None,
        digest: str = "CRC32C",
    ) -> memoryview:
        header = EntryHeader(ledger_id, entry_id, entry_id - 1 if lac is None else lac, len(payload) * (entry_id + 1))
        frame = b"".join(encode_add(header, digest_for(digest, b""), self.key, [payload]))
        return memoryview(frame)[28:]

    def add(
        self, ledger_id: int, entry_id: int, payload: bytes = b"payload", *, recovery: bool = False, **options: Any
    ) -> AddRequest:
        key = options.pop("key", self.key)
        body = self.body(ledger_id, entry_id, payload, **options)
        return AddRequest(6 if recovery else 0, key, ledger_id, entry_id, entry_id - 1, body)

    async def validate(self, ledger_id: int) -> V2Status:
        self.looks.append(ledger_id)
        if self.validate_after is not None:
            await self.validate_after.wait()
        return self.validations.get(ledger_id, V2Status.OK)

    async def format(self, disk: MemoryDisk, settings: BookieSettings | None = None) -> None:
        await Storage.format(disk, self.raw_id, SeededRandom(1), settings or self.settings)

    async def open(
        self, disk: MemoryDisk, settings: BookieSettings | None = None, *, validate: Any = None, **parts: Any
    ) -> Storage:
        """Opens, after formatting when the disk is empty; `parts` are further arguments of `Storage.open`."""
        settings = settings or self.settings
        if not disk.all_names():
            await self.format(disk, settings)
        storage = await Storage.open(
            disk,
            self.raw_id,
            validate=validate or self.validate,
            rng=SeededRandom(len(disk.all_names())),
            settings=settings,
            metrics=Metrics(),
            **parts,
        )
        self._opened.append((storage, disk))
        return storage

    async def put(self, storage: Storage, *requests: AddRequest) -> list[V2Status]:
        """Adds and waits until each is answered."""
        waiting = [self.submit(storage, request) for request in requests]
        return [await one for one in waiting]

    def submit(self, storage: Storage, request: AddRequest) -> asyncio.Future[V2Status]:
        """Adds; the future is done when the add is answered."""
        future: asyncio.Future[V2Status] = asyncio.get_running_loop().create_future()

        class Late:
            def add_answered(self, status: V2Status, ledger_id: int, entry_id: int) -> None:
                future.set_result(status)

        def durable(error: BokiError | None) -> None:
            if not future.done():
                future.set_result(V2Status.OK if error is None else V2Status.IO_ERROR)

        status = storage.of(request.ledger_id).add(request, Late())
        if status is V2Status.OK:
            storage.when_durable(durable)
        elif status is not None:
            future.set_result(status)
        return future

    async def checkpoint(self, router: StorageRouter) -> None:
        """Of one directory after the other."""
        for storage in router.storages:
            await storage.checkpoint()

    async def fence(self, storage: Storage, ledger_id: int, key: bytes | None = None) -> V2Status:
        status = storage.of(ledger_id).fence(ledger_id, key or self.key)
        if status is V2Status.OK:
            await storage.journal.flushed()
        return status

    async def read(self, storage: Storage, ledger_id: int, entry_id: int) -> bytes | V2Status | StorageError:
        found = storage.of(ledger_id).look_up(ledger_id, entry_id)
        if found.body is not None:
            return bytes(found.body)
        if found.place is None:
            return found.status
        place: Place = found.place
        body = (await storage.load([(ledger_id, place)]))[0]
        return body if isinstance(body, StorageError) else bytes(body)

    def damage(self, disk: MemoryDisk, payload: bytes) -> None:
        """Flips a bit of what the first file of the entry log has."""
        disk.flip_bit(file_name(1), disk.contents(file_name(1)).index(payload))

    async def ledger(
        self, ledger_id: int, bookie_id: str, state: LedgerState = LedgerState.OPEN, *, others: Sequence[str] = ()
    ) -> None:
        """Makes the metadata of a ledger."""
        members = (BookieId(bookie_id), *(BookieId(other) for other in others))
        metadata = LedgerMetadata(
            ensemble_size=len(members),
            write_quorum=len(members),
            ack_quorum=1,
            ensembles=((0, members),),
            state=state,
        )
        await layout.create_ledger(self.store, ledger_id, encode(metadata))

    async def close_elsewhere(self, ledger_id: int) -> None:
        """Closes a ledger, and gives the place of its bookie to another, as recovery and repair do."""
        path = layout.ledger_path(ledger_id)
        found = await self.store.get(path)
        closed = dataclasses.replace(
            decode(found.value), state=LedgerState.CLOSED, last_entry=0, ensembles=((0, (BookieId("elsewhere"),)),)
        )
        await self.store.set(path, encode(closed), version=found.version)

    def decode(self, frame: bytes) -> Any:
        return decode_request(memoryview(frame)[4:])

    async def close(self) -> None:
        for storage, disk in self._opened:
            if not disk.stopped.is_set():  # else it belonged to a process that was killed
                await storage.close()
        for journal in self.opened:
            await journal.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.store.start()
    yield made
    await made.close()
    await made.store.close()


@pytest.fixture
async def storage(world: World, disk: MemoryDisk) -> Storage:
    """An empty one."""
    return await world.open(disk)


Start = Callable[..., Awaitable[Bookie]]


@pytest.fixture
async def start(world: World) -> AsyncIterator[Start]:
    """Starts a bookie on its disks, with changed settings; all are closed at the end."""
    started: list[Bookie] = []

    async def one(*disks: Disk, address: Address = LOCAL, seed: int | None = None, **changes: Any) -> Bookie:
        bookie = await Bookie.start(
            disk=disks[0],
            more_disks=disks[1:],
            metadata=world.store,
            address=address,
            clock=world.clock,
            rng=world.seeded(len(started) + 1 if seed is None else seed),
            settings=world.tiny(**changes),
        )
        started.append(bookie)
        return bookie

    yield one
    for bookie in started:
        await bookie.close()


class LyingStore(MemoryStore):
    """A metadata store whose reads hide nodes: as a replica that lags, or an iterator with a defect, would."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.hidden: dict[str, int] = {}
        """Path → how many reads of it still meet nothing."""
        self.lists_nothing = False

    async def get(self, path: str) -> Versioned:
        if self.hidden.get(path, 0):
            self.hidden[path] -= 1
            raise NoNode(f"{path} is hidden", path=path)
        return await super().get(path)

    async def children(self, path: str) -> list[str]:
        return [] if self.lists_nothing else await super().children(path)


class Collected:
    """Storages of one bookie whose garbage is collected: in a cluster that knows it, with no grace and no pace."""

    bookie_id = BOOKIE_ID

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = LyingStore(world.tree)
        self.today = 20_000
        self.settings = world.tiny(
            gc_grace_s=0.0, gc_reads_per_s=10**9, compaction_bytes_per_s=2**40, gc_empties_elsewhere=True
        )

    def now_ms(self) -> int:
        """The port Clock."""
        return self.today * DAY_MS

    async def start(self) -> None:
        await self.store.start()
        self.instance = await layout.init_cluster(self.store, rng=SeededRandom(5))
        await self.store.create(layout.cookie_path(self.bookie_id), b"a cookie")
        self.facts = LedgerFacts(self.store, self.bookie_id, self.instance)

    async def open(self, disk: MemoryDisk, *, limbo: Any = None, **changes: Any) -> Storage:
        settings = dataclasses.replace(self.settings, **changes)
        return await self.world.open(disk, settings, facts=self.facts, clock=self, limbo=limbo)

    async def ledger(self, ledger_id: int, *, state: LedgerState = LedgerState.OPEN, here: bool = True) -> None:
        """Makes the metadata of a ledger, on this bookie or on another."""
        await self.world.ledger(ledger_id, self.bookie_id if here else "elsewhere", state)

    async def forget(self, ledger_id: int) -> None:
        """Deletes a ledger's metadata, as a client does."""
        path = layout.ledger_path(ledger_id)
        await self.store.delete(path, version=(await self.store.get(path)).version)

    async def delete(self, storage: Storage, *ledgers: int) -> GcState:
        """Forgets ledgers, and collects until they are proven gone."""
        for ledger_id in ledgers:
            await self.forget(ledger_id)
        await storage.collect_garbage()
        return await storage.collect_garbage()

    async def close_elsewhere(self, ledger_id: int) -> None:
        """Recovery and repair: closed, and all its entries are on another bookie."""
        await self.world.close_elsewhere(ledger_id)


@pytest.fixture
def new_collected() -> Callable[[], Awaitable[Collected]]:
    """Makes what `collected` is, in whatever loop runs."""

    async def make() -> Collected:
        made = Collected(World())
        await made.world.store.start()
        await made.start()
        return made

    return make


@pytest.fixture
async def collected(world: World) -> AsyncIterator[Collected]:
    made = Collected(world)
    await made.start()
    yield made
    await world.close()
    await made.store.close()


@pytest.fixture
def answers() -> Callable[[], Answers]:
    return Answers


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def recorded_frames(case: str) -> list[tuple[bytes, bytes]]:
    """The requests of a recorded case, such as `v2-add-crc32c`, each with its response; whole frames."""
    frames: dict[str, bytes] = {}
    for line in (VECTORS / f"{case}.txt").read_text().splitlines():
        kind, separator, text = line.partition(": ")
        if separator and kind.startswith(("request.", "response.")):
            frames[kind] = bytes.fromhex(text)
    count = sum(kind.startswith("request.") for kind in frames)
    return [(frames[f"request.{number}"], frames[f"response.{number}"]) for number in range(1, count + 1)]


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], list[tuple[bytes, bytes]]]:
    """Reads what Apache's client sent, and what Apache's bookie answered."""
    return recorded_frames
