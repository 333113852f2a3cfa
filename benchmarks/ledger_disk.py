"""What the disk takes when three processes write to it as bookies do, and nothing else runs: the ceiling of records in entries.

Each process makes every byte durable in a journal, one flush a group of 256 KiB (the size of an entry of records), in segments
that were written before; and puts the same bytes, a mebibyte at a time, around the page cache into a file that grows, as
checkpoints do into the entry log, never more than a write cache behind. It is Boki's own disk port, without network, checksums
or copies from sockets. `python -m benchmarks.ledger_disk FOLDER SECONDS` is one of the three.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

from boki_common.limits import KIB, MIB
from boki_common.runtime.posix_disk import PosixDisk
from boki_common.runtime.process import loop_factory, tune_memory

BOOKIES: Final = 3
GROUP_BYTES: Final = 256 * KIB
SEGMENT_BYTES: Final = 64 * MIB
SEGMENTS: Final = 2
BULK_BYTES: Final = 1 * MIB
BEHIND_BYTES: Final = 24 * MIB
"""Half of a write cache: so far a checkpoint lies behind the journal under load."""


async def mb_per_s(directory: Path, seconds: float) -> float:
    """MB/s of what each of the three makes durable, on average: half of what it writes."""
    with tempfile.TemporaryDirectory(prefix="disk-", dir=directory) as name:
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.ledger_disk", f"{name}/{number}", str(seconds), stdout=-1
            )
            for number in range(BOOKIES)
        ]
        outputs = await asyncio.gather(*(one.communicate() for one in processes))
    return statistics.mean(float(output) for output, _ in outputs)


class _Writer:
    """One of the three: `durable` bytes are in the journal, `stored` of them in the entry log."""

    def __init__(self, disk: PosixDisk) -> None:
        self.durable = 0
        self._disk = disk
        self._stored = 0
        self._ended = False
        self._changed = asyncio.Event()

    async def run(self, seconds: float) -> float:
        segments = [await self._disk.open(f"{number}.segment", create=True) for number in range(SEGMENTS)]
        zeros = [bytes(MIB)]
        for segment in segments:
            for offset in range(0, SEGMENT_BYTES, MIB):
                await segment.write(offset, zeros, durable=False)
            await segment.sync()
        storing = asyncio.create_task(self._store())
        group = [os.urandom(GROUP_BYTES)]
        started = perf_counter()
        while (taken := perf_counter() - started) < seconds:
            number, offset = divmod(self.durable % (SEGMENTS * SEGMENT_BYTES), SEGMENT_BYTES)
            await segments[number].write(offset, group, durable=True)
            self.durable += GROUP_BYTES
            self._changed.set()
            while self.durable - self._stored > BEHIND_BYTES:
                await self._change()
        self._ended = True
        self._changed.set()
        await storing
        return self.durable / taken / 1e6

    async def _store(self) -> None:
        file = await self._disk.open("entries", create=True, bulk=True)
        piece = [os.urandom(BULK_BYTES)]
        while not self._ended:
            if self.durable - self._stored < BULK_BYTES:
                await self._change()
                continue
            await file.write(self._stored, piece, durable=False)
            self._stored += BULK_BYTES
            self._changed.set()
            if self._stored % BEHIND_BYTES == 0:
                await file.sync()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def _one(folder: str, seconds: float) -> float:
    disk = PosixDisk(folder)
    await disk.lock()
    try:
        return await _Writer(disk).run(seconds)
    finally:
        await disk.close()


if __name__ == "__main__":
    tune_memory()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(runner.run(_one(sys.argv[1], float(sys.argv[2]))))
