"""Brings what the log has decided into the database: each row's records in their order, each until it is there.

A write is repeated until it is known to be done: it changes nothing the second time. Whoever dies before leaves the rest to the next
reader of the row (`transactions`), or to who brings the whole table up to date (`Tables.settle`). Who asks for `room` waits while too
many rows wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.tables.errors import TableUnavailable, WriteUnknown
from bokiflow.tables.ports import TablePort
from bokiflow.tables.rows import RowKey, to_store
from bokiflow.tables.schema import Schema
from bokiflow.tables.table_events import Written

ROWS: Final = 1_000
FIRST_DELAY_S: Final = 0.05
LAST_DELAY_S: Final = 2.0

log = get_logger(__name__)


class _Waiting:
    """Records of one row that are to be written."""

    def __init__(self) -> None:
        self.todo: deque[tuple[int, Written]] = deque()
        self.newest = 0
        self.task: asyncio.Task[None] | None = None


class Applier:
    """See the module. `written`: records, so far."""

    def __init__(self, port: TablePort, schemas: Callable[[str], Schema], refused: Callable[[RowKey], None]) -> None:
        """`refused` is called with rows that the database does not take."""
        self.written = 0
        self._port: Final = port
        self._schemas: Final = schemas
        self._refused: Final = refused
        self._rows: dict[RowKey, _Waiting] = {}
        self._done = asyncio.Event()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: RowKey, records: Iterable[tuple[int, Written]]) -> None:
        """Records of a row, ascending; the first is of the version that is stored, or follows what was added before."""
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
                    log.warning("a table does not take a write, it is repeated", table=key.table, error=str(error))
                    await asyncio.sleep(delay_s)
                    delay_s = min(LAST_DELAY_S, 2 * delay_s)
                    continue
                self.written += 1
                delay_s = FIRST_DELAY_S
                waiting.todo.popleft()
        except BokiError as error:
            log.error("a table does not take what the log has decided", table=key.table, key=key.key, error=str(error))
            self._refused(key)
        finally:
            del self._rows[key]
            self._done.set()

    async def room(self) -> None:
        """Waits while too many rows wait."""
        while len(self._rows) >= ROWS:
            await self._one_done()

    async def applied(self, keys: Iterable[RowKey]) -> None:
        """Waits until nothing of these rows waits."""
        wanted = set(keys)
        while not wanted.isdisjoint(self._rows):
            await self._one_done()

    async def _one_done(self) -> None:
        self._done.clear()
        await self._done.wait()

    async def close(self) -> None:
        """Stops; what waits is left to others."""
        tasks = [waiting.task for waiting in self._rows.values() if waiting.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
