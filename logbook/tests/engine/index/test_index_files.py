"""Large runs go to files: the same rows are found, trims go on, memory has a bound, and nothing is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engine.scripted import until

from boki_common.errors import DiskFull
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.ports import Disk
from boki_common.runtime.posix_disk import PosixDisk
from boki_logbook.index.index import Index
from boki_logbook.index.index_files import IndexFiles
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch

WRITER = bytes(16)
LEAST_ROWS = 4_000
TAIL_ROWS = 1_000
AT_ONCE = 500


@pytest.fixture(params=["posix", "memory"])
async def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return PosixDisk(tmp_path / "index") if request.param == "posix" else MemoryDisk()


@pytest.fixture
async def index() -> Index:
    return Index(tail_rows=TAIL_ROWS)


@pytest.fixture
async def files(disk: Disk, index: Index) -> AsyncIterator[IndexFiles]:
    """Not started: the test moves runs itself, and nothing moves one meanwhile."""
    await disk.lock()
    made = IndexFiles(disk, lambda: index, least_rows=LEAST_ROWS)
    yield made
    await made.close()


def add(index: Index, at: int) -> None:
    """Some more records, each with one of 50 tags, and one of a few books."""
    records = tuple(RecordSpec(tags=(1 + number % 50,)) for number in range(AT_ONCE))
    index.add(make_batch(RunSpec(at % 3, WRITER, 1, records)), 0, AT_ONCE, 1 + AT_ONCE * at)


def mapped_bytes(index: Index) -> int:
    """What of it lies in files."""
    mapped = [run for run in index.runs if run.mapped]
    return sum(column.nbytes for run in mapped for column in (run.books, run.tags, run.offsets, run.seqnums))


async def test_an_index_in_files_is_the_same_index(files: IndexFiles, index: Index, disk: Disk) -> None:
    plain = Index(tail_rows=TAIL_ROWS)
    for at in range(60):
        for one in (index, plain):
            add(one, at)
        await files.move_one()
        if at % 7 == 0:
            pairs = [(0, AT_ONCE * at // 3), (5, AT_ONCE * at // 2)]
            assert sorted(index.trim(at % 3, pairs).tolist()) == sorted(plain.trim(at % 3, pairs).tolist())
            assert index.forget(at % 3, [5], lambda _: True) == plain.forget(at % 3, [5], lambda _: True)
    assert mapped_bytes(index) > 0
    assert index.streams() == plain.streams()
    assert await disk.names() == []


async def test_memory_has_a_bound_while_the_index_grows(disk: Disk) -> None:
    """What is in memory: a byte a row, runs that are small, and one merge with what comes of it."""
    largest = 4 * LEAST_ROWS
    index = Index(tail_rows=TAIL_ROWS, largest_run=largest)
    files = IndexFiles(disk, lambda: index, least_rows=LEAST_ROWS)
    await disk.lock()
    budget = 9 * (largest + 3 * LEAST_ROWS) + 200 * 51 * 3
    for at in range(400):
        add(index, at)
        while await files.move_one():
            pass
        assert index.bytes - len(index) <= budget
    assert mapped_bytes(index) > 8 * budget
    await files.close()


async def test_runs_that_are_dead_are_dropped(files: IndexFiles, index: Index) -> None:
    for at in range(60):
        add(index, at)
        await files.move_one()
    assert mapped_bytes(index) > 0
    for book in range(3):
        index.trim(book, [(0, 2**63)])
    while index.tidy():
        pass
    assert mapped_bytes(index) == 0


async def test_a_full_disk_changes_nothing(index: Index) -> None:
    disk = MemoryDisk(capacity_bytes=1_000)
    files = IndexFiles(disk, lambda: index, least_rows=LEAST_ROWS)
    await files.start()
    for at in range(30):
        add(index, at)
    before = index.streams()
    with pytest.raises(DiskFull):
        await files.move_one()
    assert (index.streams(), mapped_bytes(index), await disk.names()) == (before, 0, [])
    await files.close()


async def test_what_an_earlier_process_left_is_removed(index: Index) -> None:
    disk = MemoryDisk()
    await disk.replace_all("run-7", b"half a run")
    files = IndexFiles(disk, lambda: index)
    await files.start()
    assert await disk.names() == []
    await files.close()


async def test_it_goes_on_by_itself(index: Index) -> None:
    disk = MemoryDisk()
    files = IndexFiles(disk, lambda: index, least_rows=LEAST_ROWS)
    for at in range(30):
        add(index, at)
    await files.start()
    await until(lambda: mapped_bytes(index))
    await files.close()
