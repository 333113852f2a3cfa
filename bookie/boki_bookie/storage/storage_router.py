"""Several data directories as one store: each is a whole `Storage` with a journal of its own, and a ledger lies in one.

One journal to one store: so a checkpoint of one directory never speaks for another, which is how data was lost elsewhere
(apache/bookkeeper#3329, PR #4844). Where a ledger lies follows from its id and the number of directories, for ever; the
identity of the bookie holds that number and the order (`identity`).

- An acknowledgement waits for every directory with writes under way: a batch may have entries in each.
- A directory that is full takes no normal adds for its own ledgers; the others go on.
- One that fails ends the bookie: part of its ledgers cannot be answered for.

With one directory there is no router: the server has the `Storage` itself, which is the same to it (`Store`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Protocol

import crc32c as _crc32c

from boki_bookie.entries.ledger_index import Ledger, Place, RunPart
from boki_bookie.journal.journal_queue import Done
from boki_bookie.storage.storage import Storage
from boki_bookie.storage.storage_reads import Found, FoundRun
from boki_bookie.storage.waiting_adds import AddAnswers
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import AddRequest, AddRun
from boki_common.errors import BokiError, StorageError


class DurableWaiter(Protocol):
    """Who tells when something is durable."""

    def when_durable(self, done: Done) -> None: ...


class Store(Protocol):
    """What the server and the administration ask of a storage, or of a router over several."""

    @property
    def read_only(self) -> bool: ...
    @property
    def journal(self) -> DurableWaiter: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def cached_bytes(self) -> int: ...
    @property
    def ledger_count(self) -> int: ...
    @property
    def ledger_ids(self) -> Iterable[int]: ...

    def ledger(self, ledger_id: int) -> Ledger | None: ...
    def add(self, request: AddRequest, answers: AddAnswers) -> V2Status | None: ...
    def add_run(self, run: AddRun) -> bool: ...
    def when_durable(self, done: Done) -> bool: ...
    def fence(self, ledger_id: int, master_key: bytes) -> V2Status: ...
    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> V2Status: ...
    def is_fenced(self, ledger_id: int) -> bool: ...
    def explicit_lac(self, ledger_id: int) -> bytes: ...
    def doubts(self, ledger_id: int) -> bool: ...
    def look_up(self, ledger_id: int, entry_id: int) -> Found: ...
    def look_up_run(self, ledger_id: int, first: int, *, count: int, room: int, overhead: int) -> FoundRun: ...
    def bodies_at_hand(self, wanted: Sequence[tuple[int, int]], room: int) -> list[memoryview | None]: ...
    def at_hand(self, ledger_id: int, place: Place) -> memoryview | None: ...
    def run_at_hand(self, ledger_id: int, parts: Sequence[RunPart]) -> list[memoryview] | None: ...
    async def load_run(self, ledger_id: int, parts: Sequence[RunPart]) -> list[memoryview]: ...
    def entry_ids(self, ledger_id: int) -> list[int] | None: ...
    async def load(self, wanted: Sequence[tuple[int, Place]]) -> list[memoryview | StorageError]: ...
    async def checkpoint(self) -> None: ...


def directory_of(ledger_id: int, directories: int) -> int:
    """Which directory holds a ledger. Never to be changed: what is stored lies where this says."""
    return _crc32c.crc32c(ledger_id.to_bytes(8, "big")) % directories


class _Countdown:
    """Calls `done` once: when all have called, or with the first error."""

    __slots__ = ("_done", "_left")

    def __init__(self, count: int, done: Done) -> None:
        self._left = count
        self._done = done

    def one(self, error: BokiError | None) -> None:
        if self._left <= 0:
            return
        self._left = 0 if error is not None else self._left - 1
        if self._left == 0:
            self._done(error)


class _Journals:
    """The journals of all directories."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        self._storages = storages

    def when_durable(self, done: Done) -> None:
        """Calls `done` once all that was appended so far, anywhere, is durable."""
        countdown = _Countdown(len(self._storages), done)
        for storage in self._storages:
            storage.journal.when_durable(countdown.one)


class StorageRouter:
    """See the module. Takes over the storages, in the order of their directories; `close` closes them."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        assert len(storages) > 1, "a single storage needs no router"
        self.storages = tuple(storages)
        self.journal = _Journals(self.storages)
        self.failed: asyncio.Future[BokiError] = asyncio.get_running_loop().create_future()
        self.disk_full = asyncio.Event()
        """Set when a checkpoint of any directory met a full disk; whoever watches the disks clears it."""
        for storage in self.storages:
            storage.disk_full = self.disk_full
            storage.failed.add_done_callback(self._one_failed)

    def of(self, ledger_id: int) -> Storage:
        """The storage that a ledger lies in; any for an id that cannot be."""
        return self.storages[directory_of(max(ledger_id, 0), len(self.storages))]

    @property
    def read_only(self) -> bool:
        """Whether any directory takes no normal adds: new ledgers should go elsewhere then."""
        return any(storage.read_only for storage in self.storages)

    @property
    def cached_bytes(self) -> int:
        return sum(storage.cached_bytes for storage in self.storages)

    @property
    def file_bytes(self) -> int:
        return sum(storage.file_bytes for storage in self.storages)

    @property
    def ledger_count(self) -> int:
        return sum(storage.ledger_count for storage in self.storages)

    @property
    def ledger_ids(self) -> Iterable[int]:
        return itertools.chain.from_iterable(storage.ledger_ids for storage in self.storages)

    # -- one ledger

    def ledger(self, ledger_id: int) -> Ledger | None:
        return self.of(ledger_id).ledger(ledger_id)

    def add(self, request: AddRequest, answers: AddAnswers) -> V2Status | None:
        return self.of(request.ledger_id).add(request, answers)

    def add_run(self, run: AddRun) -> bool:
        return self.of(run.ledger_id).add_run(run)

    def fence(self, ledger_id: int, master_key: bytes) -> V2Status:
        return self.of(ledger_id).fence(ledger_id, master_key)

    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> V2Status:
        return self.of(ledger_id).write_lac(ledger_id, master_key, body)

    def is_fenced(self, ledger_id: int) -> bool:
        return self.of(ledger_id).is_fenced(ledger_id)

    def explicit_lac(self, ledger_id: int) -> bytes:
        return self.of(ledger_id).explicit_lac(ledger_id)

    def doubts(self, ledger_id: int) -> bool:
        return self.of(ledger_id).doubts(ledger_id)

    def look_up(self, ledger_id: int, entry_id: int) -> Found:
        return self.of(ledger_id).look_up(ledger_id, entry_id)

    def look_up_run(self, ledger_id: int, first: int, *, count: int, room: int, overhead: int) -> FoundRun:
        return self.of(ledger_id).look_up_run(ledger_id, first, count=count, room=room, overhead=overhead)

    def at_hand(self, ledger_id: int, place: Place) -> memoryview | None:
        return self.of(ledger_id).at_hand(ledger_id, place)

    def run_at_hand(self, ledger_id: int, parts: Sequence[RunPart]) -> list[memoryview] | None:
        return self.of(ledger_id).run_at_hand(ledger_id, parts)

    async def load_run(self, ledger_id: int, parts: Sequence[RunPart]) -> list[memoryview]:
        return await self.of(ledger_id).load_run(ledger_id, parts)

    def entry_ids(self, ledger_id: int) -> list[int] | None:
        return self.of(ledger_id).entry_ids(ledger_id)

    # -- all of them

    def bodies_at_hand(self, wanted: Sequence[tuple[int, int]], room: int) -> list[memoryview | None]:
        bodies: list[memoryview | None] = []
        for one in wanted:
            if room <= 0:
                break
            (body,) = self.of(one[0]).bodies_at_hand((one,), room)
            bodies.append(body)
            room -= 0 if body is None else len(body)
        return bodies

    def when_durable(self, done: Done) -> bool:
        """Calls back when the adds taken so far, anywhere, may be acknowledged; whether any write cache is too full."""
        countdown = _Countdown(len(self.storages), done)
        too_full = [storage.when_durable(countdown.one) for storage in self.storages]  # all of them are to be asked
        return any(too_full)

    async def load(self, wanted: Sequence[tuple[int, Place]]) -> list[memoryview | StorageError]:
        """Bodies in order, read from all directories at once."""
        parts: dict[Storage, list[int]] = {}
        for at, (ledger_id, _) in enumerate(wanted):
            parts.setdefault(self.of(ledger_id), []).append(at)
        loaded = await asyncio.gather(*(storage.load([wanted[at] for at in ats]) for storage, ats in parts.items()))
        found: dict[int, memoryview | StorageError] = {}
        for ats, bodies in zip(parts.values(), loaded, strict=True):
            found.update(zip(ats, bodies, strict=True))
        return [found[at] for at in range(len(wanted))]

    async def checkpoint(self) -> None:
        """One of each directory. Raises DiskFull, DiskFailed."""
        for storage in self.storages:
            await storage.checkpoint()

    def request_checkpoint(self) -> None:
        for storage in self.storages:
            storage.request_checkpoint()

    async def close(self) -> None:
        for storage in self.storages:
            await storage.close()

    def _one_failed(self, failed: asyncio.Future[BokiError]) -> None:
        if not self.failed.done() and not failed.cancelled():
            self.failed.set_result(failed.result())
