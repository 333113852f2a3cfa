"""The disk port on a POSIX directory. Threads of the data path are here and in `disk_threads` alone.

- A durable write is one hand-off: each file that is ever written durably has a thread for itself (`disk_threads`), which does
  pwritev and fdatasync back to back and wakes the event loop once. Two files never wait for each other's flush.
- While the disk flushes in less time than two thread switches are worth, small durable writes are made on the event loop
  itself (`FlushPace`): a third less processor time for a lone write. One slow flush, and the thread has them again.
- Everything else (reads, plain writes, names, renames) goes through a few threads that the whole disk shares; but what the
  system has in its cache can be had on the event loop (`read_at_hand`), for a hundredth of two thread switches.
- Aligned writes to a `bulk` file go around the page cache (O_DIRECT), from the file's own thread: a third of the processor
  time, and no burst of dirty pages that the flushes of other files would wait for. Where the file system cannot do that,
  they are ordinary writes.
- Names are made durable before the call returns: the folder is synced after a create, rename or remove.
- Errors of the operating system become StorageErrors that name the path: no space is DiskFull, not permitted or
  read-only is WrongDirectory, all others DiskFailed with errno and offset. A failed flush is never tried again here.
- A cancelled call is not undone: the thread finishes it, and `close` waits for it.

It knows nothing of formats. `memory_disk` behaves the same without a machine; both pass one contract suite.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, TypeVar

from boki_common.errors import (
    ClosedError,
    CorruptData,
    DirectoryInUse,
    DiskFailed,
    DiskFull,
    InvalidArgument,
    StorageError,
    WrongDirectory,
)
from boki_common.limits import MIB
from boki_common.runtime.direct_writer import IOV_MAX, AlignedPieces, DirectWriter, write_fully
from boki_common.runtime.disk_threads import Executor, OwnExecutors
from boki_common.runtime.flush_pace import INLINE_FLUSH_S, FlushPace
from boki_common.runtime.heap import unfilled
from boki_common.runtime.ports import BULK_PAGE_BYTES, FILL_PIECE_BYTES, Buffer

T = TypeVar("T")

SHARED_THREADS: Final = 4
"""Reads and operations on names of one disk that run at the same time."""
AT_HAND_BYTES: Final = 1 * MIB
"""So much is copied from the system's cache on the event loop, at most: a quarter of a millisecond."""
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
"""Only Linux has it."""
ASIDE: Final = ".aside"
"""Suffix of a file that `replace_all` has not finished; never listed, overwritten by the next one."""

_NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
_NOT_PERMITTED: Final = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))


def checked_name(name: str) -> str:
    """The name, if it is relative and stays inside its directory. Raises InvalidArgument."""
    if not name or any(part in ("", ".", "..") for part in name.split("/")) or name.endswith(ASIDE) or "\0" in name:
        raise InvalidArgument(f"expected a relative file name without '.' or '..', found {name!r}", name=name)
    return name


def storage_error(fault: OSError, path: str, doing: str, offset: int | None = None) -> StorageError:
    """The error of the operating system, as one of ours."""
    where = path if offset is None else f"{path} at byte {offset}"
    facts = {"path": path, "errno": fault.errno, "offset": offset}
    if fault.errno in _NO_SPACE:
        return DiskFull(f"no space left while {doing} {where}: free some space, the bookie goes on by itself", **facts)
    if fault.errno in _NOT_PERMITTED:
        return WrongDirectory(
            f"not permitted to go on {doing} {where} ({fault.strerror}): "
            "expected a directory that this user may write to, on a file system that is mounted writable",
            **facts,
        )
    return DiskFailed(f"the disk failed while {doing} {where}: {fault.strerror} (errno {fault.errno})", **facts)


def _nothing() -> None:
    """For calls whose end nobody counts."""


def _direct_writer(path: Path, pieces: AlignedPieces) -> DirectWriter | None:
    """None where the file system has no O_DIRECT."""
    try:
        return DirectWriter(os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC), pieces)
    except OSError as fault:
        if fault.errno != errno.EINVAL:
            raise
        return None


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PosixFile:
    """One open file; see the module's rules for which thread does what."""

    def __init__(
        self,
        name: str,
        path: str,
        descriptor: int,
        direct: DirectWriter | None,
        shared: Executor,
        executors: OwnExecutors,
        pace: FlushPace,
        forget: Callable[[PosixFile], None],
    ) -> None:
        self.name = name
        self._path = path
        self._descriptor = descriptor
        self._direct = direct
        self._shared = shared
        self._executors = executors
        self._forget = forget
        self._own: Executor | None = None
        self._pace = pace
        self._running = 0
        self._ending: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False

    async def size(self) -> int:
        return await self._call(self._shared, lambda: os.fstat(self._descriptor).st_size, "measuring")

    async def write(self, offset: int, buffers: Sequence[Buffer], *, durable: bool) -> None:
        size = sum(map(len, buffers))
        if durable and self.write_now(offset, buffers, size) is not None:
            return
        direct = self._direct
        if direct is not None and not offset % BULK_PAGE_BYTES and not size % BULK_PAGE_BYTES:
            await self._call(
                self._own_executor(), lambda: self._write_around(direct, offset, buffers, durable), "writing", offset
            )
        elif durable:
            await self._call(self._own_executor(), lambda: self._write_and_flush(offset, buffers), "writing", offset)
        else:
            await self._call(self._shared, lambda: write_fully(self._descriptor, offset, buffers), "writing", offset)

    async def fill(self, offset: int, length: int) -> None:
        def fill() -> None:
            zeros, stop = memoryview(bytes(min(length, FILL_PIECE_BYTES))), offset + length
            for at in range(offset, stop, FILL_PIECE_BYTES):
                write_fully(self._descriptor, at, [zeros[: stop - at]])
            os.fdatasync(self._descriptor)

        await self._call(self._own_executor(), fill, "filling", offset)

    def write_now(self, offset: int, buffers: Sequence[Buffer], size: int) -> float | None:
        if size > self._pace.inline_bytes or self._closing:
            return None
        begun = perf_counter()
        try:
            if os.pwritev(self._descriptor, buffers[:IOV_MAX], offset) != size:
                write_fully(self._descriptor, offset, buffers)  # from the start: it is the same bytes
            os.fdatasync(self._descriptor)
        except OSError as fault:
            raise storage_error(fault, self._path, "writing", offset) from fault
        seconds = perf_counter() - begun
        if seconds > INLINE_FLUSH_S:
            self._pace.took(seconds)
        else:
            self._pace.inline_flushes += 1
        return seconds

    def _write_and_flush(self, offset: int, buffers: Sequence[Buffer]) -> None:
        begun = perf_counter()
        write_fully(self._descriptor, offset, buffers)
        os.fdatasync(self._descriptor)
        self._pace.took(perf_counter() - begun)

    def _write_around(self, direct: DirectWriter, offset: int, buffers: Sequence[Buffer], durable: bool) -> None:
        direct.write(offset, buffers)
        if durable:
            os.fdatasync(self._descriptor)

    async def read(self, offset: int, length: int) -> bytes:
        def read_fully() -> bytes:
            data = os.pread(self._descriptor, length, offset)
            if len(data) == length or not data:
                return data
            parts = [data]  # a short read is the end of the file, or a signal or a huge length
            done = len(data)
            while done < length and (more := os.pread(self._descriptor, length - done, offset + done)):
                parts.append(more)
                done += len(more)
            return b"".join(parts)

        return await self._call(self._shared, read_fully, "reading", offset)

    def read_at_hand(self, offset: int, length: int) -> bytearray | None:
        if _NO_WAIT is None or self._closing or length > AT_HAND_BYTES:
            return None
        data = unfilled(length)
        try:
            return data if os.preadv(self._descriptor, [data], offset, _NO_WAIT) == length else None
        except OSError:
            return None  # not in the cache, or not supported by this file system; `read` raises a fault

    async def map(self, length: int) -> memoryview:
        def mapped() -> memoryview:
            return memoryview(mmap.mmap(self._descriptor, length, access=mmap.ACCESS_READ))

        return await self._call(self._shared, mapped, "mapping")

    async def sync(self) -> None:
        await self._call(self._own_executor(), lambda: os.fdatasync(self._descriptor), "flushing")

    async def truncate(self, size: int) -> None:
        await self._call(self._own_executor(), lambda: os.ftruncate(self._descriptor, size), "truncating", size)

    async def close(self) -> None:
        if self._ending is None:
            self._closing = True
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        """A task of its own: a close that is cancelled goes on, and a second close of the file or its disk waits for it."""
        await self._idle.wait()
        if self._own is not None:
            self._executors.give_back(self._own)
        await self._shared.submit(self._close_descriptors, _nothing)
        self._forget(self)

    def _close_descriptors(self) -> None:
        os.close(self._descriptor)
        if self._direct is not None:
            self._direct.close()

    def _own_executor(self) -> Executor:
        if self._own is None:
            self._own = self._executors.borrow()
        return self._own

    async def _call(self, executor: Executor, call: Callable[[], T], doing: str, offset: int | None = None) -> T:
        if self._closing:
            raise ClosedError(f"{self._path} is closed", path=self._path)
        self._running += 1
        self._idle.clear()
        try:
            return await executor.submit(call, self._finished)
        except OSError as fault:
            raise storage_error(fault, self._path, doing, offset) from fault

    def _finished(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._idle.set()


class PosixDisk:
    """A directory; made by `lock` when it is absent."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute()
        self._shared = Executor("boki-disk", SHARED_THREADS)
        self._executors = OwnExecutors("boki-disk-own")
        self._pace = FlushPace()
        self._pieces = AlignedPieces()
        self._files: dict[int, PosixFile] = {}
        self._lock: int | None = None
        self._closed = False

    async def open(self, name: str, *, create: bool = False, bulk: bool = False) -> PosixFile:
        path = self._path(name)
        descriptor, direct = await self._call(lambda: self._open_both(path, create, bulk), "opening", path)
        file = PosixFile(name, str(path), descriptor, direct, self._shared, self._executors, self._pace, self._forget)
        self._files[id(file)] = file
        return file

    async def names(self, folder: str = "") -> list[str]:
        path = self._path(folder) if folder else self._root

        def listed() -> list[str]:
            try:
                with os.scandir(path) as entries:
                    return sorted(e.name for e in entries if e.is_file() and not e.name.endswith(ASIDE))
            except FileNotFoundError:
                return []

        return await self._call(listed, "listing", path)

    async def exists(self, name: str) -> bool:
        path = self._path(name)
        return await self._call(lambda: path.is_file(), "looking for", path)

    async def read_all(self, name: str) -> bytes:
        path = self._path(name)

        return await self._call(path.read_bytes, "reading", path)

    async def replace_all(self, name: str, data: Buffer) -> None:
        path = self._path(name)

        def replace() -> None:
            self._make_folder(path.parent)
            aside = path.with_name(path.name + ASIDE)
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                write_fully(descriptor, 0, [data])
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            aside.replace(path)
            _sync_folder(path.parent)

        await self._call(replace, "replacing", path)

    async def rename(self, old: str, new: str) -> None:
        old_path, new_path = self._path(old), self._path(new)

        def rename() -> None:
            self._make_folder(new_path.parent)
            old_path.replace(new_path)
            _sync_folder(new_path.parent)
            if old_path.parent != new_path.parent:
                _sync_folder(old_path.parent)

        await self._call(rename, "renaming", old_path)

    async def remove(self, name: str) -> None:
        path = self._path(name)

        def remove() -> None:
            try:
                path.unlink()
            except FileNotFoundError:
                return
            _sync_folder(path.parent)

        await self._call(remove, "removing", path)

    async def free_bytes(self) -> int:
        def free() -> int:
            found = os.statvfs(self._root)
            return found.f_bavail * found.f_frsize

        return await self._call(free, "measuring", self._root)

    async def device(self) -> str:
        return await self._call(lambda: str(os.stat(self._root).st_dev), "measuring", self._root)

    async def lock(self) -> None:
        def take() -> int:
            self._make_folder(self._root)
            if not os.access(self._root, os.W_OK | os.X_OK, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self._root))
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

        try:
            self._lock = await self._call(take, "locking", self._root)
        except DiskFailed as fault:
            if fault.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise
            raise DirectoryInUse(
                f"{self._root} is in use by another process: stop that one, or name another directory",
                path=str(self._root),
            ) from fault

    async def in_use(self) -> bool:
        """Return whether a process, this one included, has locked the directory. It need not be writable, and is not locked afterwards."""

        def look() -> bool:
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
            return False

        return await self._call(look, "looking whether it is locked:", self._root)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for file in list(self._files.values()):
            await file.close()
        if self._lock is not None:
            descriptor, self._lock = self._lock, None
            await self._shared.submit(lambda: os.close(descriptor), _nothing)
        self._executors.stop()
        self._shared.stop()

    def describe(self, name: str = "") -> str:
        return str(self._root / name) if name else str(self._root)

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name)

    def _forget(self, file: PosixFile) -> None:
        self._files.pop(id(file), None)

    def _open_both(self, path: Path, create: bool, bulk: bool) -> tuple[int, DirectWriter | None]:
        descriptor = self._open(path, create)
        try:
            return descriptor, _direct_writer(path, self._pieces) if bulk else None
        except BaseException:
            os.close(descriptor)
            raise

    def _open(self, path: Path, create: bool) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if not create:
                raise
        self._make_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _make_folder(self, path: Path) -> None:
        """Makes a folder and its parents; each is on stable media when it returns."""
        if path.is_dir():
            return
        parent = path.parent
        self._make_folder(parent)
        try:
            path.mkdir()
        except FileExistsError:
            if not path.is_dir():
                raise
        _sync_folder(parent)

    async def _call(self, call: Callable[[], T], doing: str, path: Path) -> T:
        if self._closed:
            raise ClosedError(f"{self._root} is closed", path=str(self._root))
        try:
            return await self._shared.submit(call, _nothing)
        except FileNotFoundError as fault:
            raise CorruptData(
                f"expected the file {path}, found none: it was removed from outside. An older copy of it is of no use",
                path=str(path),
            ) from fault
        except OSError as fault:
            raise storage_error(fault, str(path), doing) from fault
