"""What only a real directory can show: errors of the operating system, short writes, threads, permissions."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from boki_common.errors import ClosedError, CorruptData, DiskFailed, DiskFull, WrongDirectory
from boki_common.runtime import posix_disk
from boki_common.runtime.flush_pace import INLINE_AFTER, INLINE_BYTES
from boki_common.runtime.ports import FILL_PIECE_BYTES, Buffer
from boki_common.runtime.posix_disk import PosixDisk, PosixFile, storage_error


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EROFS, WrongDirectory),
        (errno.EACCES, WrongDirectory),
        (errno.EPERM, WrongDirectory),
        (errno.EIO, DiskFailed),
    ],
)
def test_errors_of_the_system_become_ours_with_path_errno_and_offset(number: int, kind: type[Exception]) -> None:
    error = storage_error(OSError(number, os.strerror(number)), "/data/x", "writing", 4096)
    assert type(error) is kind
    assert (error.path, error.errno, error.offset) == ("/data/x", number, 4096)
    assert "/data/x at byte 4096" in str(error)


async def test_a_full_device_is_disk_full(tmp_path: Path) -> None:
    disk = PosixDisk("/dev")
    try:
        file = await disk.open("full")
        with pytest.raises(DiskFull, match="/dev/full at byte 8"):
            await file.write(8, [b"x"], durable=True)
    finally:
        await disk.close()


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root may write anywhere: be somebody else for one test."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    yield
    os.seteuid(0)


async def test_a_directory_that_may_not_be_written_says_so(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    root = tmp_path / "data"
    root.mkdir()
    root.chmod(0o555)
    request.getfixturevalue("nobody")
    disk = PosixDisk(root)
    with pytest.raises(WrongDirectory, match="mounted writable"):
        await disk.lock()
    with pytest.raises(WrongDirectory):
        await disk.open("file", create=True)
    await disk.close()


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[PosixDisk]:
    disk = PosixDisk(tmp_path)
    yield disk
    await disk.close()


async def test_a_directory_is_in_use_while_a_process_has_locked_it(tmp_path: Path) -> None:
    other = PosixDisk(tmp_path)
    for _ in range(2):
        assert not await other.in_use()
    again = PosixDisk(tmp_path)
    await again.lock()
    assert await other.in_use() and await again.in_use()
    await again.close()
    assert not await other.in_use()
    await other.close()


async def test_short_writes_are_continued(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(descriptor: int, buffers: list[bytes], offset: int) -> int:
        whole = b"".join(buffers)
        return real(descriptor, [whole[: max(1, len(whole) // 3)]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    file = await disk.open("file", create=True)
    buffers = [bytes([number]) * number for number in range(100)]
    await file.write(3, buffers, durable=True)
    assert await file.read(0, 10_000) == bytes(3) + b"".join(buffers)


async def test_a_durable_write_flushes_in_one_hand_off_and_another_does_not_flush(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fdatasync

    def counted(descriptor: int) -> None:
        flushed.append(threading.current_thread().name)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    first = await disk.open("first", create=True)
    second = await disk.open("second", create=True)
    await first.write(0, [b"x"], durable=False)
    assert flushed == []
    await first.write(0, [b"x"], durable=True)
    await first.write(0, [b"x"], durable=True)
    await second.write(0, [b"x"], durable=True)
    assert flushed == ["boki-disk-own-1-0", "boki-disk-own-1-0", "boki-disk-own-2-0"]


async def test_a_failed_flush_raises_disk_failed(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    file = await disk.open("file", create=True)
    with pytest.raises(DiskFailed, match=r"file at byte 0: input/output error \(errno 5\)"):
        await file.write(0, [b"x"], durable=True)


async def test_an_unfinished_replacement_is_invisible(disk: PosixDisk, tmp_path: Path) -> None:
    (tmp_path / "file.aside").write_bytes(b"torn")
    assert await disk.names() == []
    with pytest.raises(CorruptData):
        await disk.read_all("file")
    await disk.replace_all("file", b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


async def test_a_close_that_is_cancelled_goes_on(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    file = await disk.open("a", create=True)
    writing = asyncio.ensure_future(file.write(0, [bytes(1 << 24)], durable=True))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(file.close())
    await asyncio.sleep(0)
    closing.cancel()
    async with asyncio.timeout(10):
        await file.close()
        await writing
        await disk.close()


async def test_a_file_has_the_thread_of_one_that_was_closed(disk: PosixDisk) -> None:
    before: set[threading.Thread] = set()
    for number in range(5):
        file = await disk.open(f"segment-{number}", create=True)
        await file.write(0, [b"x"], durable=True)
        assert not before or set(threading.enumerate()) == before
        before = set(threading.enumerate())
        await file.close()


async def test_closing_ends_the_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    disk = PosixDisk(tmp_path)
    file = await disk.open("file", create=True)
    await file.write(0, [b"x"], durable=True)
    started = set(threading.enumerate()) - before
    assert len(started) == posix_disk.SHARED_THREADS + 1
    await disk.close()
    for thread in started:
        thread.join(timeout=5)
        assert not thread.is_alive()


def direct_writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Notes (bytes, thread) of each write that goes around the page cache."""
    real, found = os.pwritev, []

    def noted(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            found.append((sum(map(len, buffers)), threading.current_thread().name))
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", noted)
    return found


def without_direct(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The file system refuses O_DIRECT with this error."""
    real = os.open

    def refused(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refused)


async def test_only_aligned_writes_to_a_bulk_file_go_around_the_page_cache(
    disk: PosixDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT))
    except OSError as fault:
        pytest.skip(f"this file system has no O_DIRECT: {fault}")
    found = direct_writes(monkeypatch)
    bulk, plain = await disk.open("bulk", create=True, bulk=True), await disk.open("plain", create=True)
    for file in (bulk, plain):
        await file.write(0, [bytes(8_192)], durable=False)
        await file.write(8_192, [bytes(4_000), bytes(96)], durable=True)
        await file.write(1, [bytes(4_096)], durable=False)
        await file.write(4_096, [bytes(4_095)], durable=True)
    assert found == [(8_192, "boki-disk-own-1-0"), (4_096, "boki-disk-own-1-0")]


async def test_a_durable_write_around_the_page_cache_is_flushed(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    real = os.fdatasync

    def counted(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    file = await disk.open("bulk", create=True, bulk=True)
    await file.write(0, [bytes(4_096)], durable=False)
    assert flushed == []
    await file.write(4_096, [bytes(4_096)], durable=True)
    assert flushed == [8_192]


async def test_without_o_direct_a_bulk_file_is_an_ordinary_one(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_direct(monkeypatch, errno.EINVAL)
    found = direct_writes(monkeypatch)
    file = await disk.open("bulk", create=True, bulk=True)
    await file.write(0, [b"x" * 4_096], durable=True)
    await file.write(4_096, [b"y" * 4_096], durable=False)
    assert await file.read(0, 10_000) == b"x" * 4_096 + b"y" * 4_096
    assert found == []


async def test_another_error_of_o_direct_is_raised_and_nothing_stays_open(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await disk.lock()
    before = sorted(os.listdir("/proc/self/fd"))
    without_direct(monkeypatch, errno.EMFILE)
    with pytest.raises(DiskFailed, match=r"opening .*bulk"):
        await disk.open("bulk", create=True, bulk=True)
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_closing_a_bulk_file_closes_both_its_descriptors(disk: PosixDisk) -> None:
    await disk.lock()
    before = sorted(os.listdir("/proc/self/fd"))
    file = await disk.open("bulk", create=True, bulk=True)
    await file.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_failed_write_around_the_page_cache_is_raised(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    file = await disk.open("bulk", create=True, bulk=True)
    monkeypatch.setattr(os, "pwritev", broken)
    with pytest.raises(DiskFull, match="bulk at byte 4096"):
        await file.write(4_096, [bytes(4_096)], durable=True)


async def test_small_durable_writes_move_to_the_loop_while_flushes_are_fast(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    now = 0.0
    takes_s = 0.0

    def flushed(descriptor: int) -> None:
        nonlocal now
        now += takes_s
        threads.append(threading.current_thread().name)

    monkeypatch.setattr(os, "fdatasync", flushed)
    monkeypatch.setattr(posix_disk, "perf_counter", lambda: now)
    file = await disk.open("file", create=True)

    async def write(count: int, size: int = 1) -> set[str]:
        threads.clear()
        for _ in range(count):
            await file.write(0, [bytes(size)], durable=True)
        return set(threads)

    loop, own = threading.current_thread().name, "boki-disk-own-1-0"
    assert await write(INLINE_AFTER) == {own}
    assert await write(3) == {loop}
    assert await write(1, INLINE_BYTES + 1) == {own}
    takes_s = 0.01
    assert await write(1) == {loop}, "the one that is slow is noticed when it is over"
    takes_s = 0.0
    assert await write(INLINE_AFTER) == {own}
    assert await write(1) == {loop}
    await file.close()
    file = await disk.open("another", create=True)
    assert await write(1) == {loop}, "the pace is that of the disk, whichever its file"
    await file.close()
    with pytest.raises(ClosedError):
        await file.write(0, [b"x"], durable=True)


async def quick_file(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> PosixFile:
    """A file with an x in it, of a disk whose flushes take no time and are made on the loop from now on."""
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    monkeypatch.setattr(posix_disk, "perf_counter", lambda: 0.0)
    file = await disk.open("file", create=True)
    for _ in range(INLINE_AFTER):
        await file.write(0, [b"x"], durable=True)
    return file


async def test_a_failed_flush_on_the_loop_raises_disk_failed(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = await quick_file(disk, monkeypatch)

    def broken(descriptor: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(DiskFailed, match=r"file at byte 3: input/output error \(errno 5\)"):
        await file.write(3, [b"x"], durable=True)


async def test_a_short_write_on_the_loop_is_continued(
    disk: PosixDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev

    def short(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        return real(descriptor, [bytes(buffers[0])[:2]], offset)

    file = await quick_file(disk, monkeypatch)
    monkeypatch.setattr(os, "pwritev", short)
    assert file.write_now(1, [b"abc", b"defg"], 7) == 0.0
    assert (tmp_path / "file").read_bytes() == b"xabcdefg"


async def test_filling_is_one_hand_off_and_one_flush(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    real = os.pwritev

    def written(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        calls.append(("write", threading.current_thread().name))
        return real(descriptor, buffers, offset)

    def flushed(descriptor: int) -> None:
        calls.append(("flush", threading.current_thread().name))

    file = await disk.open("file", create=True)
    monkeypatch.setattr(os, "pwritev", written)
    monkeypatch.setattr(os, "fdatasync", flushed)
    await file.fill(0, 3 * FILL_PIECE_BYTES)
    own = "boki-disk-own-1-0"
    assert calls == [("write", own)] * 3 + [("flush", own)]
