"""A disk that fills up under `boki dev`: new appends are refused by name, what has a number waits, and all goes on when there is room."""

from __future__ import annotations

import asyncio
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
