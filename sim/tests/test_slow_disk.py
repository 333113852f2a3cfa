"""A bookie on a device that is slower than what it is sent: one queue for all writes, so many bytes a second. In virtual time.

Everything is written twice, so adds go on at half of what the device can; what counts is that they go on smoothly: nobody
waits for a whole checkpoint to end, and memory stays within its bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from boki_bookie.entries import checkpoint, entry_log
from boki_bookie.journal import journal_segments
from boki_bookie.settings import BookieSettings
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.digests import digest_for, master_key
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import AddRequest, EntryHeader, encode_add
from boki_common.errors import BokiError
from boki_common.limits import KIB
from boki_common.metrics import Metrics
from boki_common.runtime import memory_disk
from boki_common.runtime.memory_disk import MemoryDisk, MemoryFile
from boki_common.runtime.ports import Buffer
from boki_sim.world.randomness import SimRandom, stream

BYTES_PER_S: Final = 3_000_000
FLUSH_S: Final = 0.001
SECONDS: Final = 12.0
OUTSTANDING: Final = 64
PAYLOAD: Final = bytes(2_000)
SETTINGS: Final = BookieSettings(
    journal_segment_bytes=512 * KIB,
    journal_group_bytes=128 * KIB,
    journal_queue_bytes=1024 * KIB,
    write_cache_bytes=1536 * KIB,
    entry_log_bytes=8192 * KIB,
    read_only_below_bytes=0,
    writable_above_bytes=0,
    gc_interval_s=3_600.0,
    disk_reserve_bytes=0,
)
"""A thirty-second of the defaults, as are the sizes below."""


class Device:
    """Writes one after another; what is not written through is dirty, and paid for by its file's flush."""

    def __init__(self) -> None:
        self._queue = asyncio.Lock()
        self._dirty: dict[str, int] = {}

    def soil(self, name: str, size: int) -> None:
        self._dirty[name] = self._dirty.get(name, 0) + size

    async def write(self, size: int, *, flush_of: str = "") -> None:
        async with self._queue:
            size += self._dirty.pop(flush_of, 0)
            await asyncio.sleep(size / BYTES_PER_S + (FLUSH_S if flush_of else 0))


class SlowFile(MemoryFile):
    """A file on the device. Bulk files are written through."""

    device: Device
    is_bulk: bool

    async def write(self, offset: int, buffers: Sequence[Buffer], *, durable: bool) -> None:
        size = sum(map(len, buffers))
        if durable or self.is_bulk:
            await self.device.write(size, flush_of=self.name if durable else "")
        else:
            self.device.soil(self.name, size)
        await super().write(offset, buffers, durable=durable)

    async def sync(self) -> None:
        await self.device.write(0, flush_of=self.name)
        await super().sync()


class SlowDisk(MemoryDisk):
    """A disk whose files are on one device."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    async def open(self, name: str, *, create: bool = False, bulk: bool = False) -> MemoryFile:
        plain = await super().open(name, create=create, bulk=bulk)
        file = SlowFile(self, name, plain._content)
        file.device, file.is_bulk = self._device, bulk
        return file

    async def replace_all(self, name: str, data: Buffer) -> None:
        await self._device.write(len(data), flush_of=name)
        await super().replace_all(name, data)


class Load:
    """A closed loop of adds: how long each took, and how much was in memory."""

    def __init__(self, storage: Storage) -> None:
        self.taken: list[float] = []
        self.refused = 0
        self.most_cached = 0
        self._storage = storage
        self._loop = asyncio.get_running_loop()
        self._key = master_key(b"")
        self._digest = digest_for("CRC32C", b"")
        self._next = 0
        self._length = 0
        self._ends_at = 0.0

    async def run(self, *, seconds: float = SECONDS) -> None:
        self._ends_at = self._loop.time() + seconds
        await asyncio.gather(*(self._adds() for _ in range(OUTSTANDING)))

    async def _adds(self) -> None:
        storage, loop = self._storage, self._loop
        while (begun := loop.time()) < self._ends_at:
            entry_id, self._next = self._next, self._next + 1
            self._length += len(PAYLOAD)
            header = EntryHeader(1, entry_id, entry_id - 1, self._length)
            body = memoryview(b"".join(encode_add(header, self._digest, self._key, [PAYLOAD])))[28:]
            done: asyncio.Future[BokiError | None] = loop.create_future()
            status = storage.add(AddRequest(0, self._key, 1, entry_id, entry_id - 1, body), self)
            self.refused += status is V2Status.TOO_MANY_REQUESTS
            storage.when_durable(done.set_result)
            assert await done is None
            self.taken.append(loop.time() - begun)
            self.most_cached = max(self.most_cached, storage.cached_bytes)

    def add_answered(self, status: V2Status, ledger_id: int, entry_id: int) -> None:
        assert status is V2Status.OK


async def opened(validate: Any) -> Storage:
    disk, rng = SlowDisk(Device()), SimRandom(stream(1, "slow disk"))
    await Storage.format(disk, bytes(16), rng, SETTINGS)
    storage = await Storage.open(disk, bytes(16), validate=validate, rng=rng, settings=SETTINGS, metrics=Metrics())
    storage.note_validated(1, master_key(b""))
    return storage


async def loaded(validate: Any) -> Load:
    storage = await opened(validate)
    load = Load(storage)
    await load.run()
    await storage.close()
    return load


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_log, "WRITE_BYTES", 32 * KIB)
    monkeypatch.setattr(checkpoint, "STAGE_BYTES", 128 * KIB)
    monkeypatch.setattr(checkpoint, "SMALL_STAGE_BYTES", 64 * KIB)
    monkeypatch.setattr(memory_disk, "FILL_PIECE_BYTES", 8 * KIB)
    monkeypatch.setattr(journal_segments, "_FLUSH_BYTES", 128 * KIB)


async def validated(_ledger_id: int) -> V2Status:
    return V2Status.OK


def percentile(taken: Sequence[float], share: float) -> float:
    ordered = sorted(taken)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def test_adds_go_on_smoothly_at_nearly_half_of_what_the_device_can(simulation: Any) -> None:
    load = simulation.run(loaded(validated))
    later = load.taken[len(load.taken) // 3 :]  # first segments are filled with zeros, once in the life of a bookie
    mean = sum(later) / len(later)
    assert load.refused == 0
    assert load.most_cached < SETTINGS.write_cache_bytes
    assert OUTSTANDING * len(PAYLOAD) / mean >= 0.36 * BYTES_PER_S
    assert percentile(later, 0.99) <= 2.2 * mean
    assert max(later) <= 2.6 * mean
    assert max(load.taken) <= 0.4


def test_a_checkpoint_leaves_the_device_to_others_most_of_the_time(simulation: Any) -> None:
    async def checkpoint_alone() -> tuple[float, int]:
        storage = await opened(validated)
        await Load(storage).run(seconds=0.1)
        size, begun = storage.cached_bytes, asyncio.get_running_loop().time()
        await storage.checkpoint()
        taken = asyncio.get_running_loop().time() - begun
        await storage.close()
        return taken, size

    taken, size = simulation.run(checkpoint_alone())
    assert 200_000 < size < SETTINGS.write_cache_bytes // 2
    assert taken >= 4 * size / BYTES_PER_S
