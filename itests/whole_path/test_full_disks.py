"""A disk that fills up under `boki dev`: new appends are refused by name, what has a number waits, and all goes on when there is room."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import boki
from boki_common.limits import MIB
from itests.support.fixtures import skip_or_fail
from itests.support.processes import running

pytestmark = pytest.mark.processes

DISK = 300 * MIB
SETTINGS = {
    "BOKI_BOOKIE_READ_ONLY_BELOW_BYTES": str(115 * MIB),
    "BOKI_BOOKIE_WRITABLE_ABOVE_BYTES": str(120 * MIB),
    "BOKI_BOOKIE_DISK_CHECK_INTERVAL_S": "0.1",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        skip_or_fail("namespaces", f"no file system can be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


async def until_refused(book: boki.Book) -> list[boki.Ticket]:
    """Appends until one is refused; what was numbered before."""
    tickets: list[boki.Ticket] = []
    async with asyncio.timeout(30):
        while True:
            try:
                tickets.append(book.submit(b"numbered"))
            except boki.DiskFull:
                return tickets
            await asyncio.wait([asyncio.ensure_future(tickets[-1].outcome())], timeout=0.2)


async def test_appends_to_a_full_disk_are_refused_until_it_has_room(disk: Path) -> None:
    arguments = ("dev", "--data", disk / "data", "--listen", "127.0.0.1:0", "--gateway-port", "-1")
    async with running(*arguments, log=disk.parent / "dev.log", environment=SETTINGS) as dev:
        await refused_until_there_is_room(dev.url, disk)
        assert dev.process.stdin is not None
        dev.process.stdin.close()
        assert await dev.process.wait() == 0


async def refused_until_there_is_room(url: str, disk: Path) -> None:
    async with boki.connect(url) as client:
        book = client.book("b")
        await book.append(b"before")
        filler = disk / "filler"
        filler.write_bytes(bytes(190 * MIB))
        tickets = await until_refused(book)
        with pytest.raises(
            boki.DiskFull, match="1 bookies have to take a record, 0 do, and 1 are up and read-only"
        ) as caught:
            await book.append(b"refused")
        assert caught.value.definite and caught.value.retryable
        async with boki.connect(url) as later:
            with pytest.raises(boki.DiskFull):
                await later.book("another").append(b"refused")
        assert (await book.read_next()) is not None, "what is there is read"
        filler.unlink()
        async with asyncio.timeout(30):
            while client.refusal is not None:
                await asyncio.sleep(0)
            numbered = [await ticket for ticket in tickets]
            after = await book.append(b"after")
        assert [record.seqnum async for record in book.read()][1:] == [*numbered, after]


TRIMMED = SETTINGS | {
    "BOKI_BOOKIE_ENTRY_LOG_BYTES": str(8 * MIB),
    "BOKI_BOOKIE_JOURNAL_SEGMENT_BYTES": str(8 * MIB),
    "BOKI_BOOKIE_DISK_RESERVE_BYTES": str(8 * MIB),
    "BOKI_BOOKIE_WRITE_CACHE_BYTES": str(8 * MIB),
    "BOKI_BOOKIE_GC_GRACE_S": "0.1",
    "BOKI_BOOKIE_GC_INTERVAL_S": "0.5",
    "BOKI_ENGINE_RECLAIM_GRACE_S": "0.1",
    "BOKI_ENGINE_HOUSEKEEPING_S": "0.2",
}


async def until_full(book: boki.Book) -> list[tuple[int, int]]:
    """Appends until the disk is full; (number, seqnum) of what was acknowledged."""
    acknowledged: list[tuple[int, int]] = []

    async def one(number: int) -> None:
        acknowledged.append((number, await book.append(b"%d " % number + bytes(200_000))))

    number = 0
    pending: set[asyncio.Task[None]] = set()
    async with asyncio.timeout(60):
        while True:
            pending.add(asyncio.ensure_future(one(number)))
            number += 1
            done, pending = await asyncio.wait(pending, timeout=0.02 if len(pending) < 8 else 0.5)
            if any(isinstance(task.exception(), boki.DiskFull) for task in done):
                break
    for task in pending:
        task.cancel()
    await asyncio.wait(pending) if pending else None
    return acknowledged


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_a_trim_on_a_full_disk_makes_room_and_appends_go_on(disk: Path, restarted: bool) -> None:
    """Nobody frees space but the trim; what is not trimmed is there."""
    arguments = ("dev", "--data", disk / "data", "--listen", "127.0.0.1:0", "--gateway-port", "-1")
    log = disk.parent / "dev.log"
    async with running(*arguments, log=log, environment=TRIMMED) as dev:
        async with boki.connect(dev.url) as client:
            book = client.book("b")
            acknowledged = await until_full(book)
            assert len(acknowledged) > 100
            if not restarted:
                await trimmed_until_there_is_room(client, acknowledged)
        assert dev.process.stdin is not None
        dev.process.stdin.close()
        assert await dev.process.wait() == 0
    if restarted:
        free = shutil.disk_usage(disk).free
        (disk / "filler").write_bytes(bytes(max(0, free - 90 * MIB)))  # a start makes some room
        async with (
            running(*arguments, log=log, environment=TRIMMED) as dev,
            boki.connect(dev.url) as client,
        ):
            await trimmed_until_there_is_room(client, acknowledged)


async def trimmed_until_there_is_room(client: boki.Client, acknowledged: list[tuple[int, int]]) -> None:
    book = client.book("b")
    last = max(seqnum for _, seqnum in acknowledged)
    async with asyncio.timeout(20):
        while client.refusal is None:
            await asyncio.sleep(0)
        with pytest.raises(boki.DiskFull):
            await book.append(b"refused")
        tail = await book.check_tail(consistency="linearizable")
        assert tail is not None and tail.seqnum >= last, (
            "what is acknowledged is read; an append that was given up may be there"
        )
        await book.trim(before=tail.seqnum + 1)
        while client.refusal is not None:
            await asyncio.sleep(0)
        after = [await book.append(b"%d " % number + bytes(200_000)) for number in range(100)]
    assert after == sorted(after) and after[0] > tail.seqnum
