"""Large runs of the index in files that are mapped into memory, so that an engine needs little memory for old rows.

    files = IndexFiles(disk, lambda: index)
    await files.start()          # takes the directory, removes what a process before left there
    ...                          # from time to time it moves the columns of a large run into a file
    await files.close()

    file, little endian, nothing else in it
    seqnums u64[n] | books u64[k] | tags u64[k] | offsets u32[k+1]         the columns of sorted_run.py, but `held`

Rules:
- A file is nobody's truth: it loses its name as soon as it is mapped, so it goes with its run or with the process, and is never
  flushed. What an engine knows after a crash is in the replicated snapshot and in the logs.
- `held` changes, so it stays in memory: 1 byte a row of 9, and of 29 where each row has a stream of its own.
- One run at a time, some MiB a turn of the disk; a run that is merged away meanwhile was written for nothing.
- A disk that is full or fails is logged: rows stay in memory, and it is tried again later.

What is mapped is read by the system when it is looked at: a look at rows that nobody looked at for long waits for the disk, and
so does the loop. A disk whose pages cannot be read any more ends the process (docs/adr/0016).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import numpy as np

from boki_common import limits
from boki_common.errors import StorageError
from boki_common.logs import get_logger
from boki_common.runtime.ports import Disk
from boki_logbook.index.index import Index
from boki_logbook.index.sorted_run import SortedRun

MAPPED_ROWS: Final = 256 * 1024
"""A run of fewer rows stays in memory: 2 to 8 MiB, and it will be merged soon."""
WRITTEN_BYTES: Final = 4 * limits.MIB
PERIOD_S: Final = 1.0
PAUSE_S: Final = 60.0
"""After a fault of the disk."""

_log = get_logger("index-files")


class IndexFiles:
    """See the module. The disk is its own, and closed by `close`."""

    def __init__(self, disk: Disk, index: Callable[[], Index], *, least_rows: int = MAPPED_ROWS) -> None:
        """`index`: the one to look at now; an engine that begins anew has another."""
        self._disk = disk
        self._index = index
        self._least_rows = least_rows
        self._written = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises DirectoryInUse, WrongDirectory, DiskFailed."""
        await self._disk.lock()
        for name in await self._disk.names():
            await self._disk.remove(name)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="moves the index to files")

    async def _run(self) -> None:
        while True:
            pause_s = PERIOD_S
            try:
                while await self.move_one():
                    pass
            except StorageError as error:
                _log.warning("index rows stay in memory: trying again later", error=error)
                pause_s = PAUSE_S
            await asyncio.sleep(pause_s)

    async def move_one(self) -> bool:
        """Moves one run, if one is large enough. Raises StorageError; then nothing is changed."""
        run = self._index().movable(self._least_rows)
        if run is None:
            return False
        view = await self._mapped(run)
        rows, streams = len(run.seqnums), len(run.books)
        columns, offsets = np.frombuffer(view, np.uint64, rows + 2 * streams), view[8 * (rows + 2 * streams) :]
        run.move(
            columns[rows : rows + streams],
            columns[rows + streams :],
            np.frombuffer(offsets, np.uint32),
            columns[:rows],
        )
        return True

    async def _mapped(self, run: SortedRun) -> memoryview:
        """The columns of a run in a file without a name."""
        self._written += 1
        name = f"run-{self._written}"
        file = await self._disk.open(name, create=True)
        try:
            at = 0
            for column in (run.seqnums, run.books, run.tags, run.offsets):
                data = column.view(np.uint8).data
                for start in range(0, len(data), WRITTEN_BYTES):
                    part = data[start : start + WRITTEN_BYTES]
                    await file.write(at, [part], durable=False)
                    at += len(part)
            return await file.map(at)
        finally:
            await file.close()
            await self._disk.remove(name)

    async def close(self) -> None:
        """Ends it, and gives the directory back; what is mapped stays so."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._disk.close()
