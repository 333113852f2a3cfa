"""The applier, which writes to the database what the log has decided: the records of each row, in their order.

A write is repeated until it is known to be done; a repeated write changes nothing. If the process dies before, the next reader of the row
writes the rest (`transactions`), or a process that brings the whole table up to date (`Tables.settle`). The number of rows that wait is
bounded: `room` blocks while there are too many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.tables.errors import TableUnavailable, WriteUnknown
from bokiflow.tables.ports import TablePort
from bokiflow.tables.schema import RowKey, Schema, Written, to_store

ROWS: Final = 1_000
FIRST_DELAY_S: Final = 0.05
LAST_DELAY_S: Final = 2.0

log = get_logger(__name__)


class _Waiting:
    """Records of a row that wait to be written, and the task that writes them."""

    def __init__(self) -> None:
        self.todo: deque[tuple[int, Written]] = deque()
        self.newest = 0
        self.task: asyncio.Task[None] | None = None


class Applier:
    """The queue of records to write, by row, and one task for each row that has any.

    Attributes:
        written: records written so far.
    """

    def __init__(self, port: TablePort, schemas: Callable[[str], Schema], refused: Callable[[RowKey], None]) -> None:
        """Create an applier without records.

        Args:
            port: the database.
            schemas: returns the schema of a table.
            refused: is called with a row whose write the database refuses.
        """
        self.written = 0
        self._port: Final = port
        self._schemas: Final = schemas
        self._refused: Final = refused
        self._rows: dict[RowKey, _Waiting] = {}
        self._done = asyncio.Event()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: RowKey, records: Iterable[tuple[int, Written]]) -> None:
        """Queue records of a row, ascending. The first follows the stored version, or the records added before."""
        waiting = self._rows.setdefault(key, _Waiting())
        for seqnum, event in records:
            if seqnum > waiting.newest:
                waiting.todo.append((seqnum, event))
                waiting.newest = seqnum
        if waiting.task is None:
            waiting.task = asyncio.get_running_loop().create_task(self._apply(key, waiting), name="bokiflow table")

    async def _apply(self, key: RowKey, waiting: _Waiting) -> None:
        delay_s = FIRST_DELAY_S
        try:
            while waiting.todo:
                seqnum, event = waiting.todo[0]
                try:
                    await self._port.write(self._schemas(key.table), key, to_store(seqnum, event), seqnum)
                except (TableUnavailable, WriteUnknown) as error:
                    log.warning("table write failed: it is repeated", table=key.table, error=str(error))
                    await asyncio.sleep(delay_s)
                    delay_s = min(LAST_DELAY_S, 2 * delay_s)
                    continue
                self.written += 1
                delay_s = FIRST_DELAY_S
                waiting.todo.popleft()
        except BokiError as error:
            log.error("table write refused: only the log has it", table=key.table, key=key.key, error=str(error))
            self._refused(key)
        finally:
            del self._rows[key]
            self._done.set()

    async def room(self) -> None:
        """Wait until fewer than `ROWS` rows have records to write."""
        while len(self._rows) >= ROWS:
            await self._one_done()

    async def applied(self, keys: Iterable[RowKey]) -> None:
        """Wait until no record of these rows waits to be written."""
        wanted = set(keys)
        while not wanted.isdisjoint(self._rows):
            await self._one_done()

    async def _one_done(self) -> None:
        self._done.clear()
        await self._done.wait()

    async def close(self) -> None:
        """Stop writing. Other processes write the records that still wait."""
        tasks = [waiting.task for waiting in self._rows.values() if waiting.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
