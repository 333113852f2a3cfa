"""`boki dev`: what it says, what it makes of its settings, and that data survives kill -9."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

import boki
from boki_bookie.settings import BookieSettings
from boki_cli.roles import ProcessSettings, RunningRole
from boki_cli.start import dev
from boki_common.errors import ConnectionLost, DiskFull, Unreachable, WrongDirectory
from boki_common.limits import MIB
from boki_common.net.lasting_ports import lasting_port
from itests.support import processes
from itests.support.processes import Running


def test_copies_follow_the_number_of_bookies() -> None:
    def of(bookies: int) -> tuple[object, object]:
        found = dev.copies(bookies)
        assert found["engine.replicas"] == found["sequencer.replicas"]
        assert found["engine.acks"] == found["sequencer.acks"]
        return found["engine.replicas"], found["engine.acks"]

    assert [of(bookies) for bookies in (1, 2, 3, 5)] == [(1, 1), (2, 2), (3, 2), (3, 2)]


def test_it_says_what_it_survives() -> None:
    assert dev.what_it_survives(1) == (
        "one bookie: survives kill -9 and power loss of a disk that honours flush, not the loss of the disk"
    )
    assert "not the loss of the machine" in dev.what_it_survives(3)


def test_metadata_lies_in_the_data_directory(tmp_path: Path) -> None:
    assert dev.metadata_address(tmp_path / "new" / "data") == f"sqlite://{tmp_path / 'new' / 'data' / 'metadata.db'}"
    (tmp_path / "file").touch()
    with pytest.raises(
        WrongDirectory, match=r"cannot make the data directory .*/file/x: Not a directory; choose another"
    ):
        dev.metadata_address(tmp_path / "file" / "x")


def test_bookies_that_have_a_directory_are_counted(tmp_path: Path) -> None:
    assert dev.bookies_there(tmp_path / "absent") == 0
    for name in ("bookie-1", "bookie-3", "bookie-x", "other-9"):
        (tmp_path / name).mkdir()
    assert dev.bookies_there(tmp_path) == 3


@asynccontextmanager
async def running(folder: Path, *arguments: str, listen: str = "127.0.0.1:0") -> AsyncIterator[Running]:
    """A `boki dev` on a directory; unless it is killed it has to end as it should."""
    data = folder / "data"
    async with processes.running("dev", "--data", data, "--listen", listen, *arguments, log=folder / "log") as dev:
        assert (dev.ready["role"], dev.ready["pid"]) == ("dev", dev.process.pid)
        yield dev
    assert dev.process.returncode in (0, -signal.SIGKILL)


@pytest.mark.processes
@pytest.mark.parametrize("bookies", ["1", "3"])
async def test_data_survives_kill_9(tmp_path: Path, bookies: str) -> None:
    listen = f"127.0.0.1:{lasting_port()}"  # it begins again there
    async with running(tmp_path, "--bookies", bookies, listen=listen) as dev, boki.connect(dev.url) as client:
        book = client.book("b")
        seqnums = await book.append_many([(b"%d" % number, [f"n/{number % 3}"]) for number in range(1000)])
        assert await book.append(b"last", tags=["n/0"]) > seqnums[-1]
        dev.process.kill()
        assert await dev.process.wait() == -signal.SIGKILL
    async with running(tmp_path, "--bookies", bookies, listen=listen) as dev, boki.connect(dev.url) as client:
        book = client.book("b")
        found = [(record.seqnum, record.data) async for record in book.read()]
        assert found[:-1] == [(seqnum, b"%d" % number) for number, seqnum in enumerate(seqnums)]
        assert found[-1][1] == b"last"
        by_tag = [record.data async for record in book.read("n/0")]
        assert by_tag == [*(b"%d" % number for number in range(0, 1000, 3)), b"last"]
        assert await book.append(b"after") > found[-1][0]
    assert dev.process.returncode == 0


@pytest.mark.processes
async def test_metrics_of_all_roles_are_on_one_page(tmp_path: Path) -> None:
    async with running(tmp_path, "--bookies", "2", "--metrics", "127.0.0.1:0") as dev:
        async with boki.connect(dev.url) as client:
            await client.book("b").append_many([(b"x", []) for _ in range(100)])
        async with aiohttp.ClientSession(f"http://{dev.ready['metrics']}") as session:
            async with session.get("/metrics") as response:
                assert response.status == 200
                lines = [line for line in (await response.text()).splitlines() if not line.startswith("#")]
            async with session.get("/healthz") as response:
                assert (response.status, await response.json()) == (200, {"status": "ok"})
    assert dev.process.returncode == 0
    values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert values["boki_engine_appended_records_total"] == 100
    assert values["boki_engine_indexed_records_total"] == 100
    assert values['boki_sequencer_records_total{log="0"}'] == 100
    assert values["boki_ledger_entries_acked_total"] >= 2  # the metalog's and the data ledger's
    assert values['boki_bookie_adds_total{status="OK"}'] >= 4  # both bookies
    written = [value for name, value in values.items() if name.startswith("boki_bookie_write_cache_bytes{bookie=")]
    assert len(written) == 2
    assert all(value > 0 for value in written)


@pytest.mark.parametrize(("bookies", "needed"), [(1, 100 + 10 + 3 * 4), (3, 100 + 3 * (10 + 3 * 4))])
async def test_new_bookies_are_refused_on_a_disk_without_room_for_them(
    tmp_path: Path, bookies: int, needed: int
) -> None:
    small = BookieSettings(read_only_below_bytes=100 * MIB, disk_reserve_bytes=10 * MIB, journal_segment_bytes=4 * MIB)
    assert dev.space_needed(small, bookies) == needed * MIB
    await dev.check_space(ProcessSettings(data=tmp_path), new=bookies)
    vast = BookieSettings(read_only_below_bytes=2**60, writable_above_bytes=2**60)
    too_much = ProcessSettings(data=tmp_path, bookie=vast)
    with pytest.raises(
        DiskFull, match=f"expected 11529.* GB of free space for boki dev in {tmp_path}, found .* --data"
    ):
        await dev.check_space(too_much, new=bookies)
    await dev.check_space(too_much, new=0)


def test_bookies_without_a_directory_are_new(tmp_path: Path) -> None:
    (tmp_path / "bookie-2").mkdir()
    assert [dev.new_bookies(tmp_path, count) for count in (1, 2, 3)] == [1, 1, 2]


@pytest.mark.processes
async def test_no_page_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as dev:
        assert "metrics" not in dev.ready
    assert dev.process.returncode == 0


async def test_a_role_that_fails_is_a_fault_until_it_serves_again() -> None:
    starts: list[Sequence[str]] = []
    failures: list[asyncio.Future[object]] = []
    faults: list[list[str]] = []
    unwell: list[str] = []
    again = asyncio.Event()

    @asynccontextmanager
    async def role(before: Sequence[str]) -> AsyncIterator[RunningRole]:
        starts.append(before)
        faults.append(dev._faults([kept]))
        if len(starts) == 2:
            raise Unreachable("still away")
        failures.append(asyncio.get_running_loop().create_future())
        if len(starts) == 3:
            again.set()
        yield RunningRole("engine", ("here:1",), failures[-1], faults=lambda: unwell)

    kept = dev._Kept(role)
    assert dev._faults([]) == ["not all roles are up yet"]
    _ = await kept.start()
    assert dev._faults([kept]) == []
    failures[0].set_exception(ConnectionLost("gone"))
    await again.wait()
    await asyncio.sleep(0)
    assert starts == [(), ("here:1",), ("here:1",)]
    fault = ["the engine failed and is started again: gone"]
    assert faults == [[], fault, fault]
    assert dev._faults([kept]) == []
    unwell.append("log 0 stops at entry 7")
    assert dev._faults([kept]) == unwell
    await kept.close()
