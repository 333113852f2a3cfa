"""The disk port in memory, with everything that a real disk may do to us: for tests and the simulator.

Each file has two views: what was written, and what is durable (the last flush). `crash` gives a new disk that holds the
durable bytes and, as a rng chooses, some of what was written since (`memory_content`). Names (create, rename, remove,
replace) are durable when their call returns, as the port demands.

Every operation passes numbered *steps*: one before it touches anything, one more between a write and its flush, and
one before it returns. `stop_after(n)` lets n steps pass and then no operation, unless `go_on` is called: a test that crashes the
disk at each n in turn has met every moment at which a process can die.

Faults: `flip_bit`, `overwrite`, `fail` (an error on the nth operation of a kind), `forgets_failed` (what a failed flush did
not write is lost, though it is read as before), `capacity_bytes` (full disk), `read_only`, `hold` and `release` (operations
of a kind wait), `slow` (they take that long in loop time), `plan` (asked before every operation).

It uses the event loop for order and time only: under a simulated loop the same seed gives the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from boki_common.errors import (
    ClosedError,
    CorruptData,
    DirectoryInUse,
    DiskFailed,
    DiskFull,
    WrongDirectory,
)
from boki_common.runtime.memory_content import Content
from boki_common.runtime.ports import FILL_PIECE_BYTES, Buffer, Random
from boki_common.runtime.posix_disk import ASIDE, checked_name

UNLIMITED_BYTES: Final = 2**60
EIO: Final = 5
_ZEROS: Final = bytes(FILL_PIECE_BYTES)

KINDS: Final = frozenset(
    ("open", "size", "write", "read", "sync", "truncate", "names", "read_all", "replace", "rename", "remove", "lock")
)
"""Kinds of operations that faults may name; a durable write is a `write` and then a `sync`."""

DiskPlan: TypeAlias = Callable[[str, str], float]
"""Given the kind of an operation and the name of its file: how many seconds it takes. Raises what it fails with."""


class MemoryFile:
    """One open file of a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, name: str, content: Content) -> None:
        self.name = name
        self._disk = disk
        self._content = content
        self._closed = False

    async def size(self) -> int:
        await self._step("size")
        return self._content.size

    async def write(self, offset: int, buffers: Sequence[Buffer], *, durable: bool) -> None:
        await self._step("write")
        self._put(offset, b"".join(buffers), self._content.write)
        if durable:
            await self.sync()

    async def fill(self, offset: int, length: int) -> None:
        stop = offset + length
        for at in range(offset, stop, FILL_PIECE_BYTES):
            await self._step("write")
            self._put(at, _ZEROS[: min(FILL_PIECE_BYTES, stop - at)], self._content.fill)
        await self.sync()

    def _put(self, offset: int, data: bytes, write: Callable[[int, bytes], None]) -> None:
        """As much of a write as there is room for."""
        if self._disk.read_only:
            self._disk._check_writable(self.name)
        growth = offset + len(data) - self._content.size
        if growth > 0 and growth > (room := self._disk._room()):
            kept = len(data) - (growth - room)
            if kept > 0:
                write(offset, data[:kept])
            where = self._disk.describe(self.name)
            raise DiskFull(f"no space left while writing {where}", path=where, offset=offset)
        write(offset, data)

    def write_now(self, offset: int, buffers: Sequence[Buffer], size: int) -> float | None:
        disk = self._disk
        if self._closed or not disk._is_quick() or offset + size - self._content.size > disk._room():
            return None
        disk._meet_now("write", self.name)
        self._content.write(offset, b"".join(buffers))
        try:
            disk._meet_now("sync", self.name)
        except DiskFailed:
            self._flush_failed()
            raise
        self._content.flush(self._content.writes)
        return 0.0

    def _flush_failed(self) -> None:
        if self._disk.forgets_failed:
            self._content.lose()

    async def read(self, offset: int, length: int) -> bytes:
        await self._step("read")
        return self._content.read(offset, length)

    def read_at_hand(self, offset: int, length: int) -> bytes | None:
        if not self._disk.cached or self._closed or offset + length > self._content.size:
            return None
        return self._content.read(offset, length)

    async def map(self, length: int) -> memoryview:
        await self._step("read")
        return memoryview(self._content.read(0, length))

    async def sync(self) -> None:
        upto = self._content.writes
        try:
            await self._step("sync")
        except DiskFailed:
            self._flush_failed()
            raise
        self._content.flush(upto)
        if self._disk.plan is None:  # else nobody counts steps, and a process that dies here has lost what it had read
            await self._disk._turn()

    async def truncate(self, size: int) -> None:
        await self._step("truncate")
        if size - self._content.size > self._disk._room():
            raise DiskFull(f"no space left while truncating {self._disk.describe(self.name)}", path=self.name)
        self._content.truncate(size)

    async def close(self) -> None:
        self._closed = True

    def _step(self, kind: str) -> Awaitable[None]:
        if self._closed:
            raise ClosedError(f"{self._disk.describe(self.name)} is closed")
        return self._disk._step(kind, self.name)


class MemoryDisk:
    """See the module's description. `reopen` is how a later process meets the same directory."""

    def __init__(self, place: str = "memory", *, capacity_bytes: int = UNLIMITED_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.read_only = False
        self.device_name = f"device of {place}"
        """Disks with the same one lie on one file system."""
        self.forgets_failed = False
        """Whether a flush that fails loses what it should have written; every later one succeeds without it."""
        self.cached = False
        """Whether everything that was written is at hand (`read_at_hand`), or nothing."""
        self.quick = False
        """Whether durable writes are made at once (`write_now`), where nothing holds them and no limit of steps is set; what
        a plan says of how long they take does not count then."""
        self.steps = 0
        self.stopped = asyncio.Event()
        """Set when `stop_after` has stopped an operation."""
        self.plan: DiskPlan | None = None
        self.wait: Callable[[float], Awaitable[object]] = asyncio.sleep
        """How an operation lets so many seconds pass."""
        self._place = place
        self._files: dict[str, Content] = {}
        self._holders: list[MemoryDisk] = []
        self._limit: int | None = None
        self._lifted = asyncio.Event()
        self._failures: dict[str, list[tuple[int, DiskFailed | DiskFull]]] = {}
        self._held: dict[str, tuple[str, asyncio.Event]] = {}
        self._delays: dict[str, float] = {}
        self._closed = False

    # -- faults

    def stop_after(self, steps: int) -> None:
        """From `steps` more steps on no operation goes on."""
        self._limit = self.steps + steps

    def go_on(self) -> None:
        """Lift what `stop_after` set. Operations that it stopped go on too."""
        self._limit = None
        self._lifted.set()
        self._lifted = asyncio.Event()

    def crash(self, rng: Random) -> MemoryDisk:
        """What a power cut at this moment leaves, as a disk of its own; this one stays as it is."""
        survivor = MemoryDisk(self._place, capacity_bytes=self.capacity_bytes)
        survivor.forgets_failed = self.forgets_failed
        survivor.device_name = self.device_name
        for name in sorted(self._files):
            survivor._files[name] = Content(self._files[name].after_crash(rng))
        return survivor

    def reopen(self) -> MemoryDisk:
        """The same directory (bytes, faults not) for another process; the lock is shared."""
        other = MemoryDisk(self._place, capacity_bytes=self.capacity_bytes)
        other._files = self._files
        other._holders = self._holders
        other.read_only = self.read_only
        other.forgets_failed = self.forgets_failed
        other.device_name = self.device_name
        other.quick = self.quick
        return other

    def flip_bit(self, name: str, offset: int, bit: int = 0) -> None:
        """Damages one bit at rest."""
        self._files[name].flip_bit(offset, bit)

    def overwrite(self, name: str, offset: int, data: bytes) -> None:
        """Damages what is at rest: these bytes were meant for another place."""
        self._files[name].overwrite(offset, data)

    def fail(self, kind: str, *, nth: int = 1, error: DiskFailed | DiskFull | None = None) -> None:
        """The nth operation of that kind from now on fails, by default with EIO."""
        assert kind in KINDS, kind
        fault = error or DiskFailed(f"the disk failed: input/output error (errno {EIO})", errno=EIO)
        self._failures.setdefault(kind, []).append((nth, fault))

    def hold(self, kind: str, *, under: str = "") -> None:
        """Operations of that kind, on files whose names begin so, wait until `release`."""
        assert kind in KINDS, kind
        self._held.setdefault(kind, (under, asyncio.Event()))

    def release(self, kind: str) -> None:
        self._held.pop(kind)[1].set()

    def slow(self, kind: str, seconds: float) -> None:
        """Operations of that kind take so long, in loop time; 0 ends it."""
        assert kind in KINDS, kind
        self._delays[kind] = seconds

    def put(self, name: str, data: bytes) -> None:
        """Lays down a file as if it had always been there."""
        self._files[checked_name(name)] = Content(data)

    def contents(self, name: str) -> bytes:
        """The bytes of a file as written."""
        return self._files[name].written

    def size_of(self, name: str) -> int:
        """How many bytes a file has as written."""
        return self._files[name].size

    def all_names(self) -> list[str]:
        return sorted(self._files)

    # -- the port

    async def open(self, name: str, *, create: bool = False, bulk: bool = False) -> MemoryFile:
        checked_name(name)
        await self._step("open", name)
        content = self._files.get(name)
        if content is None:
            if not create:
                raise self._absent(name)
            self._check_writable(name)
            content = self._files[name] = Content()
            await self._turn()
        return MemoryFile(self, name, content)

    async def names(self, folder: str = "") -> list[str]:
        await self._step("names", folder)
        start = f"{folder}/" if folder else ""
        inside = [name.removeprefix(start) for name in self._files if name.startswith(start)]
        return sorted(name for name in inside if "/" not in name and not name.endswith(ASIDE))

    async def exists(self, name: str) -> bool:
        await self._step("names", name)
        return checked_name(name) in self._files

    async def read_all(self, name: str) -> bytes:
        await self._step("read_all", name)
        if checked_name(name) not in self._files:
            raise self._absent(name)
        return self._files[name].written

    async def replace_all(self, name: str, data: Buffer) -> None:
        checked_name(name)
        await self._step("replace", name)
        self._check_writable(name)
        if len(data) > self._room():
            raise DiskFull(f"no space left while replacing {self.describe(name)}", path=name)
        self._files[name] = Content(bytes(data))
        await self._turn()

    async def rename(self, old: str, new: str) -> None:
        checked_name(new)
        await self._step("rename", old)
        self._check_writable(new)
        if old not in self._files:
            raise self._absent(old)
        self._files[new] = self._files.pop(old)
        await self._turn()

    async def remove(self, name: str) -> None:
        await self._step("remove", name)
        self._check_writable(name)
        self._files.pop(checked_name(name), None)
        await self._turn()

    async def free_bytes(self) -> int:
        await self._step("size", "")
        return self._room()

    async def device(self) -> str:
        await self._step("size", "")
        return self.device_name

    async def lock(self) -> None:
        await self._step("lock", "")
        self._check_writable("")
        if self._holders and self._holders[0] is not self:
            raise DirectoryInUse(f"{self._place} is in use by another process: stop that one", path=self._place)
        self._holders[:] = [self]

    async def close(self) -> None:
        self._closed = True
        if self in self._holders:
            self._holders.remove(self)

    def describe(self, name: str = "") -> str:
        return f"{self._place}/{name}" if name else self._place

    # -- inside

    def _room(self) -> int:
        if self.capacity_bytes == UNLIMITED_BYTES:
            return UNLIMITED_BYTES
        return max(0, self.capacity_bytes - sum(content.size for content in self._files.values()))

    def _absent(self, name: str) -> CorruptData:
        return CorruptData(
            f"expected the file {self.describe(name)}, found none: it was removed from outside", path=name
        )

    def _check_writable(self, name: str) -> None:
        if self.read_only:
            raise WrongDirectory(f"{self.describe(name)} is on a read-only file system", path=self.describe(name))

    async def _step(self, kind: str, name: str) -> None:
        """Passes one step of an operation: its delays, holds and failures, then one turn of the loop."""
        if self._closed:
            raise ClosedError(f"{self._place} is closed", path=self._place)
        if self.plan is None:
            await self._turn()
            seconds = self._delays.get(kind, 0.0)
        else:  # its seconds are the turn of the loop
            self.steps += 1
            seconds = self.plan(kind, name)
            if self._delays:
                seconds += self._delays.get(kind, 0.0)
        if seconds > 0:
            await self.wait(seconds)
        if self._held or self._failures:
            await self._meet_faults(kind, name)

    async def _meet_faults(self, kind: str, name: str) -> None:
        while (held := self._held.get(kind)) is not None and name.startswith(held[0]):
            await held[1].wait()
        self._fail_if_due(kind)

    def _fail_if_due(self, kind: str) -> None:
        due = self._failures.get(kind)
        if due:
            self._failures[kind] = [(nth - 1, error) for nth, error in due if nth > 1]
            for nth, error in due:
                if nth == 1:
                    raise error

    def _is_quick(self) -> bool:
        """Whether nothing could happen to a durable write but a failure."""
        unrestricted = self._limit is None and not self._closed and not self.read_only
        return self.quick and unrestricted and not self._held and not any(self._delays.values())

    def _meet_now(self, kind: str, name: str) -> None:
        """One step of an operation that takes no time."""
        if self.plan is not None:
            self.steps += 1
            self.plan(kind, name)
        self._fail_if_due(kind)

    async def _turn(self) -> None:
        """One numbered step: past the limit nothing goes on."""
        if self._limit is not None and self.steps >= self._limit:
            self.stopped.set()
            await self._lifted.wait()
        self.steps += 1
        await asyncio.sleep(0)
