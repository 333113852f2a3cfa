"""The faults of the memory disk do what they say: a test is only as good as the disk that breaks under it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import DiskFailed, DiskFull, WrongDirectory
from boki_common.runtime.memory_content import SECTOR_BYTES
from boki_common.runtime.memory_disk import MemoryDisk, MemoryFile
from boki_common.testing.machine import SeededRandom


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
async def file(disk: MemoryDisk) -> MemoryFile:
    return await disk.open("file", create=True)


async def test_a_crash_keeps_what_was_durable_and_tears_the_rest_at_sectors(disk: MemoryDisk, file: MemoryFile) -> None:
    await file.write(0, [b"a" * 2048], durable=True)
    await file.write(512, [b"b" * 2048], durable=False)
    outcomes = set()
    for seed in range(200):
        survivor = disk.crash(SeededRandom(seed)).contents("file")
        assert survivor[:512] == b"a" * 512
        sectors = [survivor[at : at + 512] for at in range(512, len(survivor), 512)]
        assert all(sector in (b"a" * 512, b"b" * 512, bytes(512)) for sector in sectors)
        outcomes.add(survivor)
    assert b"a" * 2048 in outcomes
    assert b"a" * 512 + b"b" * 2048 in outcomes
    assert len(outcomes) > 6
    assert disk.contents("file") == b"a" * 512 + b"b" * 2048


@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=6))
def test_a_crash_leaves_only_bytes_that_some_write_put_there(seed: int, writes: list[tuple[int, int]]) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        file = await disk.open("file", create=True)
        for number, (offset, length) in enumerate(writes, 1):
            await file.write(offset, [bytes([number]) * length], durable=False)
        survivor = disk.crash(SeededRandom(seed)).contents("file")
        for at, byte in enumerate(survivor):
            if byte:
                offset, length = writes[byte - 1]
                assert offset <= at < offset + length
        assert disk.crash(SeededRandom(seed)).contents("file") == survivor

    asyncio.run(scenario())


async def test_a_flush_covers_what_was_written_before_it_and_no_more(disk: MemoryDisk, file: MemoryFile) -> None:
    await file.write(0, [b"a" * SECTOR_BYTES], durable=False)
    disk.hold("sync")
    flush = asyncio.ensure_future(file.sync())
    await asyncio.sleep(0)
    await file.write(SECTOR_BYTES, [b"b" * SECTOR_BYTES], durable=False)
    disk.release("sync")
    await flush
    survivors = {disk.crash(SeededRandom(seed)).contents("file") for seed in range(40)}
    assert survivors == {b"a" * SECTOR_BYTES, b"a" * SECTOR_BYTES + b"b" * SECTOR_BYTES}


async def test_a_stopped_disk_that_goes_on_ends_what_it_stopped() -> None:
    disk = MemoryDisk()
    disk.stop_after(1)
    opening = asyncio.ensure_future(disk.open("file", create=True))
    await disk.stopped.wait()
    assert not opening.done()
    disk.go_on()
    async with asyncio.timeout(5):
        await (await opening).write(0, [b"x"], durable=True)
    assert disk.contents("file") == b"x"


async def test_stop_after_stops_every_operation_at_that_step() -> None:
    async def script(disk: MemoryDisk) -> None:
        file = await disk.open("file", create=True)
        await file.write(0, [b"x"], durable=True)
        await disk.rename("file", "other")

    whole = MemoryDisk()
    await script(whole)
    seen = set()
    for steps in range(whole.steps):
        disk = MemoryDisk()
        disk.stop_after(steps)
        task = asyncio.ensure_future(script(disk))
        await disk.stopped.wait()
        assert not task.done()
        task.cancel()
        survivor = disk.crash(SeededRandom(steps))
        seen.add(tuple((name, survivor.contents(name)) for name in survivor.all_names()))
    assert {(), (("file", b""),), (("file", b"x"),), (("other", b"x"),)} <= seen


async def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    disk = MemoryDisk(capacity_bytes=100)
    file = await disk.open("file", create=True)
    await file.write(0, [b"x" * 80], durable=True)
    assert await disk.free_bytes() == 20
    with pytest.raises(DiskFull):
        await file.write(80, [b"y" * 30], durable=True)
    await file.write(0, [b"z" * 80], durable=True)
    with pytest.raises(DiskFull):
        await disk.replace_all("other", bytes(1))
    disk.capacity_bytes = 200
    await disk.replace_all("other", bytes(1))


async def test_the_nth_operation_fails_once(disk: MemoryDisk, file: MemoryFile) -> None:
    disk.fail("sync", nth=2)
    await file.sync()
    with pytest.raises(DiskFailed, match="input/output"):
        await file.sync()
    await file.sync()


async def test_a_quick_disk_writes_at_once_and_what_is_written_survives(disk: MemoryDisk, file: MemoryFile) -> None:
    disk.quick = True
    assert file.write_now(0, [b"durable"], 7) == 0.0
    assert disk.crash(SeededRandom(1)).contents("file") == b"durable"
    disk.fail("write")
    with pytest.raises(DiskFailed):
        file.write_now(0, [b"another"], 7)
    disk.fail("sync")
    with pytest.raises(DiskFailed):
        file.write_now(0, [b"another"], 7)
    assert disk.contents("file") == b"another", "written, not flushed"


async def test_a_plan_is_asked_for_each_step_of_a_write_that_is_made_at_once(
    disk: MemoryDisk, file: MemoryFile
) -> None:
    disk.quick = True
    asked: list[str] = []

    def plan(kind: str, name: str) -> float:
        asked.append(kind)
        if len(asked) > 3:
            raise DiskFailed("input/output error")
        return 1.0

    disk.plan = plan
    assert file.write_now(0, [b"one"], 3) == 0.0, "how long it takes does not count"
    with pytest.raises(DiskFailed):
        file.write_now(0, [b"two"], 3)
    assert asked == ["write", "sync", "write", "sync"]
    assert disk.contents("file") == b"two", "written, not flushed"


async def test_what_was_filled_survives(disk: MemoryDisk, file: MemoryFile) -> None:
    await file.write(0, [b"x" * 10], durable=True)
    await file.fill(2, 5)
    assert disk.crash(SeededRandom(1)).contents("file") == b"xx" + bytes(5) + b"xxx"


@pytest.mark.parametrize("what", ["held", "slow", "limited", "full", "read-only"])
async def test_where_something_could_happen_to_a_write_nothing_is_written_at_once(
    disk: MemoryDisk, file: MemoryFile, what: str
) -> None:
    disk.quick = True
    if what == "held":
        disk.hold("sync")
    elif what == "slow":
        disk.slow("write", 1.0)
    elif what == "limited":
        disk.stop_after(1)
    elif what == "full":
        disk.capacity_bytes = 3
    else:
        disk.read_only = True
    assert file.write_now(0, [b"data"], 4) is None
    assert disk.contents("file") == b""


@pytest.mark.parametrize("quick", [False, True])
async def test_a_flush_that_fails_may_lose_what_was_written_though_the_next_succeeds(
    disk: MemoryDisk, file: MemoryFile, quick: bool
) -> None:
    disk.forgets_failed, disk.quick = True, quick
    disk.fail("sync")
    with pytest.raises(DiskFailed):
        if quick:
            file.write_now(0, [b"lost"], 4)
        await file.write(0, [b"lost"], durable=True)
    later = disk.reopen()
    again = await later.open("file")
    await again.sync()
    assert await again.read(0, 4) == b"lost"
    after = later.crash(SeededRandom(1))
    assert (after.contents("file"), after.forgets_failed) == (b"", True)
    await again.write(0, [b"kept"], durable=True)
    assert later.crash(SeededRandom(1)).contents("file") == b"kept"


async def test_bits_flip_at_rest(disk: MemoryDisk) -> None:
    disk.put("file", b"\0\0")
    disk.flip_bit("file", 1, bit=3)
    assert await disk.read_all("file") == b"\0\x08"
    assert disk.crash(SeededRandom(1)).contents("file") == b"\0\x08"


async def test_a_bit_flips_in_what_was_not_flushed(disk: MemoryDisk, file: MemoryFile) -> None:
    await file.write(0, [b"\0"], durable=True)
    await file.write(1, [b"\0"], durable=False)
    disk.flip_bit("file", 1)
    assert await disk.read_all("file") == b"\0\x01"


async def test_a_read_only_disk_reads(disk: MemoryDisk) -> None:
    disk.put("file", b"x")
    disk.read_only = True
    assert await disk.read_all("file") == b"x"
    for call in (disk.lock(), disk.remove("file"), disk.open("other", create=True)):
        with pytest.raises(WrongDirectory, match="read-only"):
            await call


async def test_slow_operations_take_loop_time(disk: MemoryDisk) -> None:
    disk.slow("read_all", 0.01)
    disk.put("file", b"x")
    loop = asyncio.get_running_loop()
    start = loop.time()
    await disk.read_all("file")
    assert loop.time() - start >= 0.009


async def test_a_plan_delays_and_fails_operations(disk: MemoryDisk) -> None:
    disk.put("file", b"x")
    asked = []

    def plan(kind: str, name: str) -> float:
        asked.append((kind, name))
        if kind == "remove":
            raise DiskFailed("the plan says so")
        return 0.01

    disk.plan = plan
    loop = asyncio.get_running_loop()
    start = loop.time()
    await disk.read_all("file")
    assert loop.time() - start >= 0.009
    with pytest.raises(DiskFailed, match="the plan says so"):
        await disk.remove("file")
    assert asked == [("read_all", "file"), ("remove", "file")]


async def test_under_a_plan_a_durable_write_is_over_when_its_flush_is(disk: MemoryDisk, file: MemoryFile) -> None:
    disk.plan = lambda kind, name: 0.0
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "another turn of the loop")
    await file.write(0, [b"x"], durable=True)
    assert not turns
    assert disk.contents("file") == b"x"


async def test_a_misdirected_write_is_there_after_a_crash(disk: MemoryDisk) -> None:
    disk.put("file", b"abcdef")
    disk.overwrite("file", 2, b"XY")
    assert await disk.read_all("file") == b"abXYef"
    assert disk.crash(SeededRandom(1)).contents("file") == b"abXYef"
