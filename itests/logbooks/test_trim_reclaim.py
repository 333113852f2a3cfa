"""Append and trim, for ever: terms roll by their age, die, and are reclaimed; disks and engines stay as large as they were."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.testing.logs import ledgers_of
from boki_metalog.terms.metadata_tree import read_record
from boki_metalog.terms.term_record import DELETED, TERMS_PATH

pytestmark = [pytest.mark.processes]

MIB: Final = 1 << 20
SETTINGS: Final = {
    "BOKI_SEQUENCER_TERM_AGE_S": "1",
    "BOKI_ENGINE_HOUSEKEEPING_S": "0.2",
    "BOKI_ENGINE_RECLAIM_GRACE_S": "0.5",
    "BOKI_ENGINE_CACHE_BYTES": str(4 * MIB),
    "BOKI_BOOKIE_GC_INTERVAL_S": "0.5",
    "BOKI_BOOKIE_GC_GRACE_S": "0.2",
    "BOKI_BOOKIE_CHECKPOINT_INTERVAL_S": "0.5",
    "BOKI_BOOKIE_ENTRY_LOG_BYTES": str(MIB),
    "BOKI_BOOKIE_JOURNAL_SEGMENT_BYTES": str(6 * MIB),
    "BOKI_BOOKIE_WRITE_CACHE_BYTES": str(8 * MIB),
    "BOKI_BOOKIE_DISK_RESERVE_BYTES": "0",
}
BATCH: Final = 64
"""Of an append, which the next one waits for: some 30 MiB/s. With larger ones a quick machine outruns its collections by 200 MiB."""
RECORD: Final = bytes(1_000)
DISK_BYTES: Final = 144 * MIB
"""Of one bookie: what is written in some seconds, its journal, and files that wait for the next collection. Seen: 60 to 105
MiB, whatever was appended; at least half as much again is."""
GROWTH_BYTES: Final = 24 * MIB
"""Of an engine's memory after the warm-up: more than its allocator may keep, less than an index that never shrinks."""


class Sample(NamedTuple):
    """What a cluster takes: the largest of its bookies' directories, the largest of its engines' memories."""

    disk_bytes: int
    memory_bytes: int


def sample(cluster: LocalCluster) -> Sample:
    disks, memories = [], []
    for name in cluster.roles_of("bookie"):
        disks.append(sum(_size(path) for path in (cluster.directory / name).rglob("*")))
    for name in cluster.roles_of("engine"):
        pages = int(Path(f"/proc/{cluster.pids[name]}/statm").read_text().split()[1])
        memories.append(4096 * pages)
    return Sample(max(disks), max(memories))


def _size(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512 if path.is_file() else 0
    except FileNotFoundError:
        return 0  # deleted while we look


async def append_and_trim(cluster: LocalCluster, seconds: float) -> tuple[list[Sample], int]:
    """Appends to some books and trims them, for so long at least, and until much more was appended than disks may hold.

    Returns a sample a second, and the bytes that were appended.
    """
    samples: list[Sample] = []
    appended = 0
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    async with boki.connect(cluster.url) as client:
        while loop.time() < begin_s + seconds or 2 * appended < 3 * DISK_BYTES:
            for number in range(4):
                book = client.book(f"book-{number}")
                seqnums = await book.append_many([(RECORD, ("all",))] * BATCH)
                await book.trim(before=seqnums[-1], tag="all")
                appended += BATCH * len(RECORD)
            if loop.time() > begin_s + len(samples):
                samples.append(await asyncio.to_thread(sample, cluster))
    return samples, appended


async def reclaimed_terms(cluster: LocalCluster) -> tuple[int, int]:
    """How many terms are deleted, of how many that are sealed."""
    async with ledgers_of(cluster.metadata_uri) as (store, _):
        terms = [int(name) for name in await store.children(TERMS_PATH)]
        records = [await read_record(store, term) for term in terms]
        return sum(record.location.kind == DELETED for record in records), len(records)


async def check(directory: Path, seconds: float) -> None:
    async with LocalCluster(directory, bookies=3, engines=2, settings=SETTINGS) as cluster:
        samples, appended = await append_and_trim(cluster, seconds)
        deleted, sealed = await reclaimed_terms(cluster)
        warm, rest = samples[len(samples) // 2], samples[len(samples) // 2 :]
        shown = (
            " ".join(f"{one.disk_bytes // MIB}+{one.memory_bytes // MIB}" for one in samples)
            + f" MiB; {appended // MIB} MiB"
        )
        assert max(one.disk_bytes for one in rest) < DISK_BYTES, shown
        assert max(one.memory_bytes for one in rest) < warm.memory_bytes + GROWTH_BYTES, shown
        assert deleted >= sealed - 6, f"{deleted} of {sealed} terms are deleted"
        await cluster.kill(*cluster.roles)
        await cluster.start()
        async with boki.connect(cluster.url) as client:
            for number in range(4):
                book = client.book(f"book-{number}")
                left = [one.data async for one in book.read(tag="all") if isinstance(one, boki.Record)]
                assert left == [RECORD]


@pytest.mark.alone
@pytest.mark.timeout(120)
async def test_disk_and_memory_stay_flat(tmp_path: Path) -> None:
    await check(tmp_path, 10.0)


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_disk_and_memory_stay_flat_for_ten_minutes(tmp_path: Path) -> None:
    await check(tmp_path, 600.0)
