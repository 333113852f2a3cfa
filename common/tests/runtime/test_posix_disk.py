"""What only a real directory can show: errors of the operating system, short writes, threads, permissions."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from boki_common.errors import CorruptData, DiskFailed, DiskFull, WrongDirectory
from boki_common.runtime import posix_disk
from boki_common.runtime.posix_disk import PosixDisk, storage_error


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


async def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(descriptor: int, buffers: list[bytes], offset: int) -> int:
        whole = b"".join(buffers)
        return real(descriptor, [whole[: max(1, len(whole) // 3)]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    disk = PosixDisk(tmp_path)
    file = await disk.open("file", create=True)
    buffers = [bytes([number]) * number for number in range(100)]
    await file.write(3, buffers, durable=True)
    assert await file.read(0, 10_000) == bytes(3) + b"".join(buffers)
    await disk.close()


async def test_a_durable_write_flushes_in_one_hand_off_and_a_plain_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fdatasync

    def counted(descriptor: int) -> None:
        flushed.append(threading.current_thread().name)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    disk = PosixDisk(tmp_path)
    first = await disk.open("first", create=True)
    second = await disk.open("second", create=True)
    await first.write(0, [b"x"], durable=False)
    assert flushed == []
    await first.write(0, [b"x"], durable=True)
    await first.write(0, [b"x"], durable=True)
    await second.write(0, [b"x"], durable=True)
    assert flushed == ["boki-disk-first-0", "boki-disk-first-0", "boki-disk-second-0"]
    await disk.close()


async def test_a_failed_flush_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    disk = PosixDisk(tmp_path)
    file = await disk.open("file", create=True)
    with pytest.raises(DiskFailed, match=r"file at byte 0: input/output error \(errno 5\)"):
        await file.write(0, [b"x"], durable=True)
    await disk.close()


async def test_an_unfinished_replacement_is_invisible(tmp_path: Path) -> None:
    (tmp_path / "file.aside").write_bytes(b"torn")
    disk = PosixDisk(tmp_path)
    assert await disk.names() == []
    with pytest.raises(CorruptData):
        await disk.read_all("file")
    await disk.replace_all("file", b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
    await disk.close()


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
