"""The ports: everything a role needs of the machine besides asyncio's loop and network (DESIGN §3).

Decisions use none of these; coroutines take them as arguments. `posix_disk` and `process` are the real
implementations, `memory_disk` and the simulator the others, all pass one contract suite (`common/tests/runtime`).

Time-outs and delays use the event loop (`loop.time()`, `asyncio.timeout`), which stands still while the machine is suspended;
`Clock` is wall time, for humans and `time_ms`; ages are of `MachineClock.elapsed_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from boki_common.limits import KIB

T = TypeVar("T")
BULK_PAGE_BYTES = 4_096
"""Offset and length of a write to a `bulk` file are multiples of this, or the write is an ordinary one."""
FILL_PIECE_BYTES = 64 * KIB
"""Larger pieces become larger pages of the system's cache, whose every flush costs some 10 µs more."""

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall clock. May jump; nothing that decides safety reads it."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class MachineClock(Clock, Protocol):
    """Also how time goes by: for ages, which no change of the wall clock may touch, nor a machine that sleeps."""

    def elapsed_s(self) -> float:
        """Seconds since some moment. Runs on while the machine is suspended; never jumps, never goes back."""


class Random(Protocol):
    """Randomness for identifiers, jitter and placement."""

    def token(self, size: int) -> bytes:
        """`size` random bytes."""

    def below(self, bound: int) -> int:
        """A random integer in [0, bound)."""

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in random order, as a new list."""


class Bodies(Protocol):
    """The threads that blocking functions run in (`bodies.ThreadBodies`). The simulator runs them in its event loop, each whole."""

    async def run(self, body: Callable[[], T], *, name: str = "", begun: Callable[[], None] | None = None) -> T:
        """Return what the function returns, or raise what it raises.

        A caller that is cancelled gives its function up: it may run to its end, its result is dropped, and it holds up no other function.

        Args:
            name: of the function, for lines of the log: "step 'pay' of workflow 'order-7'".
            begun: called in the caller's event loop when the function has begun: once before `run` returns, and never after it. A
                time-out that counts from then on leaves out the wait for a thread.

        Raises:
            ThreadsExhausted: the function has not begun, since too many others were given up and run on.
        """


class DiskFile(Protocol):
    """One open file. Operations on one file may be issued concurrently; each is atomic to none but itself."""

    name: str

    async def size(self) -> int:
        """Length in bytes."""

    async def write(self, offset: int, buffers: Sequence[Buffer], *, durable: bool) -> None:
        """Writes the buffers one after another from `offset`, all of them or an error.

        With `durable` the bytes are on stable media when it returns (fdatasync).

        Raises:
            DiskFull: no space; some of the bytes may be written.
            DiskFailed: any other error of the operating system. After a failed durable write or sync the file must
                not be trusted again: close it and recover.
        """

    async def fill(self, offset: int, length: int) -> None:
        """Writes zeros, durably, in pieces of `FILL_PIECE_BYTES`: for a file that is to be written over in small parts. Raises
        as `write`."""

    def write_now(self, offset: int, buffers: Sequence[Buffer], size: int) -> float | None:
        """A durable `write` of `size` bytes, made before this returns, if the disk is known to be quick. Returns how many
        seconds it took. None: nothing was written, `write` it. Raises as `write`."""

    async def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file. Raises DiskFailed."""

    def read_at_hand(self, offset: int, length: int) -> Buffer | None:
        """The same without waiting, where the system has all `length` bytes in memory; None: `read` them. Never raises."""

    async def map(self, length: int) -> memoryview:
        """The first `length` bytes, at least one, as memory to read: the system loads them when touched, and may drop them.

        It stays for as long as somebody has it, also when the file is closed or removed; the file must not be changed
        meanwhile. A disk that cannot be read then ends the process. Raises DiskFailed.
        """

    async def sync(self) -> None:
        """All writes that returned before are on stable media. Raises DiskFull, DiskFailed."""

    async def truncate(self, size: int) -> None:
        """Sets the length. Raises DiskFull, DiskFailed."""

    async def close(self) -> None:
        """Releases the file; later calls raise ClosedError. Idempotent."""


class Disk(Protocol):
    """A directory that one process owns. Names are relative, with `/`; no `..`, no absolute names."""

    async def open(self, name: str, *, create: bool = False, bulk: bool = False) -> DiskFile:
        """Opens for reading and writing. With `create` the file and its folders are made when absent, durably.

        `bulk` promises large writes that are seldom read back soon: those at multiples of `BULK_PAGE_BYTES` may go
        around the system's cache. It changes speed only.

        Raises:
            CorruptData: absent, without `create` (a file that must be there is not).
            WrongDirectory: read-only or not permitted. DiskFull, DiskFailed.
        """

    async def names(self, folder: str = "") -> list[str]:
        """Names of the files directly in `folder`, sorted; empty when the folder is absent."""

    async def exists(self, name: str) -> bool:
        """Whether a file has that name."""

    async def read_all(self, name: str) -> bytes:
        """Contents of a small file. Raises CorruptData when absent, DiskFailed."""

    async def replace_all(self, name: str, data: Buffer) -> None:
        """Contents of a small file, replaced atomically and durably (write aside, sync, rename, sync the folder)."""

    async def rename(self, old: str, new: str) -> None:
        """Renames durably, replacing `new`."""

    async def remove(self, name: str) -> None:
        """Removes durably; absent is fine."""

    async def free_bytes(self) -> int:
        """Space left on the device."""

    async def device(self) -> str:
        """What names the file system: two directories of one share the space that is left."""

    async def lock(self) -> None:
        """Takes the directory for this process until `close`. Raises DirectoryInUse, WrongDirectory."""

    async def close(self) -> None:
        """Closes all files and gives the lock back. Idempotent."""

    def describe(self, name: str = "") -> str:
        """The name as a person would look for it (an absolute path on a real disk): for error messages."""
