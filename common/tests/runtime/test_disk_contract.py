"""One contract for every disk: what `runtime.ports` promises, on a real directory and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from boki_common.errors import ClosedError, CorruptData, DirectoryInUse, InvalidArgument
from boki_common.runtime.flush_pace import INLINE_AFTER
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.ports import BULK_PAGE_BYTES, FILL_PIECE_BYTES, Buffer, Disk, DiskFile
from boki_common.runtime.posix_disk import PosixDisk

Reopen = Callable[[], Disk]


@pytest.fixture(params=["posix", "memory"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """Makes disks that are all the same directory."""
    if request.param == "posix":
        return lambda: PosixDisk(tmp_path / "data")
    first = MemoryDisk()
    return first.reopen


@pytest.fixture
async def disk(reopen: Reopen):  # type: ignore[no-untyped-def]
    made = reopen()
    await made.lock()
    yield made
    await made.close()


@pytest.fixture
async def file(disk: Disk) -> DiskFile:
    return await disk.open("file", create=True)


async def test_what_was_written_is_read_back(disk: Disk) -> None:
    file = await disk.open("folder/deep/file", create=True)
    assert file.name == "folder/deep/file"
    await file.write(0, [b"hello ", memoryview(b"world"), bytearray(b"!")], durable=True)
    assert await file.read(0, 100) == b"hello world!"
    assert await file.read(6, 5) == b"world"
    assert await file.read(12, 5) == b""
    assert await file.size() == 12


async def test_what_is_at_hand_is_what_a_read_gives(disk: Disk, file: DiskFile) -> None:
    if isinstance(disk, MemoryDisk):
        disk.cached = True
    await file.write(0, [b"hello world!"], durable=True)
    assert await file.read(6, 5) == b"world"
    assert file.read_at_hand(6, 5) in (b"world", None), "where the file system cannot tell, nothing is at hand"
    assert file.read_at_hand(6, 100) is None, "the end of the file is left to read"
    await file.close()
    assert file.read_at_hand(6, 5) is None


async def test_what_is_written_at_once_is_what_a_durable_write_leaves(reopen: Reopen) -> None:
    disk = reopen()
    if isinstance(disk, MemoryDisk):
        disk.quick = True
    file = await disk.open("file", create=True)
    buffers: list[Buffer] = [b"hello ", memoryview(b"world")]
    seconds: float | None = None
    for _ in range(INLINE_AFTER + 1):
        seconds = file.write_now(2, buffers, 11)
        if seconds is not None:
            break
        await file.write(2, buffers, durable=True)
    assert seconds is not None or isinstance(disk, PosixDisk), "a slow device never gets so far"
    assert await file.read(0, 20) == b"\0\0hello world"
    await file.close()
    assert file.write_now(0, [b"x"], 1) is None, "write says that it is closed"
    with pytest.raises(ClosedError):
        await file.write(0, [b"x"], durable=True)
    await disk.close()


async def test_a_filled_stretch_is_zeros_and_nothing_beside_it_changes(file: DiskFile) -> None:
    await file.write(0, [b"x" * 300], durable=False)
    await file.fill(100, 100)
    assert await file.read(0, 400) == b"x" * 100 + bytes(100) + b"x" * 100
    await file.fill(250, 2 * FILL_PIECE_BYTES + 7)
    assert await file.size() == 257 + 2 * FILL_PIECE_BYTES
    assert not any(await file.read(250, 3 * FILL_PIECE_BYTES))
    await file.close()
    with pytest.raises(ClosedError):
        await file.fill(0, 1)


async def test_a_mapped_file_can_be_read_when_it_is_closed_and_removed(disk: Disk, file: DiskFile) -> None:
    await file.write(0, [b"hello world!"], durable=False)
    view = await file.map(11)
    await file.close()
    await disk.remove("file")
    assert bytes(view) == b"hello world"
    assert view.readonly
    with pytest.raises(ClosedError):
        await file.map(5)


async def test_writing_past_the_end_fills_with_zeros(file: DiskFile) -> None:
    await file.write(5, [b"x"], durable=False)
    await file.sync()
    assert await file.read(0, 10) == bytes(5) + b"x"


async def test_a_write_of_more_buffers_than_one_system_call_takes(file: DiskFile) -> None:
    buffers = [bytes([number % 251]) * (number % 3) for number in range(5_000)]
    await file.write(0, buffers, durable=True)
    assert await file.read(0, 1 << 20) == b"".join(buffers)


async def test_an_empty_write_is_fine(file: DiskFile) -> None:
    await file.write(0, [], durable=True)
    await file.write(0, [b"", b""], durable=True)
    await file.write(10, [b""], durable=True)
    assert await file.size() == 0, "nor does it move the end"


async def test_concurrent_writes_all_arrive(file: DiskFile) -> None:
    await asyncio.gather(*(file.write(n * 10, [bytes([n]) * 10], durable=n % 2 == 0) for n in range(50)))
    assert await file.read(0, 1_000) == b"".join(bytes([n]) * 10 for n in range(50))


@pytest.mark.parametrize("durable", [True, False])
async def test_a_bulk_file_takes_writes_of_every_alignment(disk: Disk, durable: bool) -> None:
    """Aligned writes may go around the system's cache, the others do not: one file shows both, whoever came last."""
    page = BULK_PAGE_BYTES
    file = await disk.open("bulk", create=True, bulk=True)
    model = bytearray()
    for number, (offset, lengths) in enumerate(
        [
            (0, [page]),  # aligned
            (page, [1, 2 * page, page - 1]),  # aligned as a whole
            (3 * page + 17, [100]),  # unaligned, over an aligned one
            (4 * page, [5]),  # begins aligned
            (2 * page - 1, [page]),  # a page, elsewhere
            (0, [page // 2, page // 2]),  # aligned again, over itself
            (5 * page, []),
            (5 * page, [0, 0]),
            (8 * page, [3 * 2**20]),  # beyond the end, larger than what is written at once
            (9 * page, [2**20, 2**20 + page]),
        ]
    ):
        buffers = [bytes([number * 10 + part + 1]) * length for part, length in enumerate(lengths)]
        data = b"".join(buffers)
        await file.write(offset, buffers, durable=durable)
        if data:
            model.extend(bytes(max(0, offset + len(data) - len(model))))
            model[offset : offset + len(data)] = data
        assert await file.read(0, 2**23) == model, f"after write {number}"
    assert await file.size() == len(model)
    await file.sync()
    await file.truncate(page + 1)
    assert await file.read(0, 2 * page) == model[: page + 1]
    await file.close()
    assert await disk.read_all("bulk") == model[: page + 1]
    with pytest.raises(ClosedError):
        await file.write(0, [bytes(page)], durable=durable)


async def test_a_bulk_file_that_must_be_there(disk: Disk) -> None:
    with pytest.raises(CorruptData, match="absent"):
        await disk.open("absent", bulk=True)


async def test_truncate_shrinks_and_grows(file: DiskFile) -> None:
    await file.write(0, [b"abcdef"], durable=True)
    await file.truncate(2)
    assert await file.read(0, 10) == b"ab"
    await file.truncate(4)
    assert await file.read(0, 10) == b"ab\0\0"


async def test_an_absent_file_is_corruption_unless_it_may_be_made(disk: Disk) -> None:
    for refused in (disk.open("absent"), disk.read_all("absent")):
        with pytest.raises(CorruptData, match="absent"):
            await refused
    assert not await disk.exists("absent")


async def test_names_are_sorted_files_of_one_folder(disk: Disk) -> None:
    for name in ("b", "a", "folder/c", "folder/d/e"):
        await (await disk.open(name, create=True)).close()
    assert await disk.names() == ["a", "b"]
    assert await disk.names("folder") == ["c"]
    assert await disk.names("nothing") == []
    assert await disk.exists("folder/c")
    assert not await disk.exists("folder")


async def test_replace_all_replaces_and_leaves_nothing_aside(disk: Disk) -> None:
    await disk.replace_all("folder/file", b"first, longer")
    await disk.replace_all("folder/file", b"second")
    assert await disk.read_all("folder/file") == b"second"
    assert await disk.names("folder") == ["file"]


async def test_rename_replaces_and_keeps_open_files(disk: Disk) -> None:
    file = await disk.open("old", create=True)
    await file.write(0, [b"old"], durable=True)
    await disk.replace_all("new", b"new")
    await disk.rename("old", "folder/new")
    await disk.rename("folder/new", "new")
    assert await disk.read_all("new") == b"old"
    assert await disk.names() == ["new"]
    await file.write(0, [b"OLD"], durable=True)
    assert await disk.read_all("new") == b"OLD"
    with pytest.raises(CorruptData):
        await disk.rename("old", "other")


async def test_remove_is_idempotent(disk: Disk) -> None:
    await disk.replace_all("file", b"x")
    await disk.remove("file")
    await disk.remove("file")
    assert await disk.names() == []


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/.", "x.aside", "a\0b"])
async def test_names_stay_inside(disk: Disk, name: str) -> None:
    with pytest.raises(InvalidArgument, match="relative"):
        await disk.open(name, create=True)


async def test_one_process_holds_a_directory(disk: Disk, reopen: Reopen) -> None:
    other = reopen()
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        await other.lock()
    await other.close()
    await disk.close()
    third = reopen()
    await third.lock()
    await third.close()


async def test_after_close_nothing_works_and_closing_again_is_fine(disk: Disk, file: DiskFile) -> None:
    await file.close()
    await file.close()
    with pytest.raises(ClosedError):
        await file.read(0, 1)
    await disk.close()
    await disk.close()
    with pytest.raises(ClosedError):
        await disk.open("file")


async def test_a_later_process_finds_everything(disk: Disk, reopen: Reopen) -> None:
    file = await disk.open("folder/file", create=True)
    await file.write(0, [b"kept"], durable=True)
    await disk.close()
    later = reopen()
    await later.lock()
    assert await later.read_all("folder/file") == b"kept"
    await later.close()


async def test_free_bytes_and_describe(disk: Disk, reopen: Reopen) -> None:
    assert await disk.free_bytes() > 0
    later = reopen()
    assert await disk.device() == await later.device() != ""
    await later.close()
    assert disk.describe("a/b").endswith("a/b")
    assert disk.describe()


async def test_a_cancelled_write_is_waited_for_by_close(file: DiskFile) -> None:
    task = asyncio.ensure_future(file.write(0, [b"x" * 1_000_000], durable=True))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await file.close()
