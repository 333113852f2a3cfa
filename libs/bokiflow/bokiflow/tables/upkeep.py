"""What changed of a table since it was last brought up to date, what the log need not keep of it once it is, and who sees to that.

Whoever has tables open looks once in a while whether the log keeps changes of rows that are as old as a term, and then brings these tables
up to date; and takes his turn with what tables are (`carrying`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.tables.carrying import TablesCarried
from bokiflow.tables.rows import Row, RowKey
from bokiflow.tables.table_events import PICKER, Written
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.retention.carrier import Carrier
from bokilib.retention.trimmer import Trimmer

ROWS_AT_ONCE: Final = 100

log = get_logger(__name__)


class Settled(NamedTuple):
    """`rows`: that had changed. `behind`: of which the database lacked something."""

    rows: int
    behind: int


async def changed(opened: Log, table: str) -> tuple[tuple[str, int], dict[RowKey, int]]:
    """The table's stream and how far it was read; of each row that is in it the newest record."""
    tag = tags.table_rows(table)
    position = await opened.book.now(consistency="linearizable")
    found: dict[RowKey, int] = {}
    async for item in opened.book.read(tag, start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            continue  # trimmed: somebody has brought that up to date
        for event in PICKER.of(item.seqnum, await opened.open(item), table):
            if isinstance(event, Written):
                found[RowKey(table, event.key)] = item.seqnum
    return (tag, position), found


def behind(stored: Iterable[Row], newest: Mapping[RowKey, int]) -> int:
    """Of how many rows something is not stored."""
    return sum(row.version < newest[row.key] for row in stored)


async def is_old(opened: Log, table: str, carry_ms: int) -> bool:
    """Whether the log keeps a change of a row that is as old as a term, by the newest record that there is."""
    newest = await opened.book.read_prev(consistency="linearizable")
    if newest is not None:
        async for item in opened.book.read(tags.table_rows(table), start=1, stop=newest.seqnum + 1):
            if isinstance(item, boki.Record):
                return newest.time_ms - item.time_ms >= carry_ms
    return False


async def tried(table: str, settling: Awaitable[object]) -> bool:
    """Whether a table is settled; what stops it is logged, and it is tried again the next time."""
    try:
        await settling
    except BokiError as error:
        log.warning("a table is not settled, and keeps its terms", table=table, error=str(error))
        return False
    return True


async def keep(opened: Log, settle_old: Callable[[], Awaitable[object]], *, every_s: float, carry_ms: int) -> None:
    """For as long as a process has tables open. Who comes for less than `every_s` does nothing of it."""
    await asyncio.sleep(every_s)
    async with Carrier(
        opened, [TablesCarried(opened)], who=f"tables of {opened.by}", every_s=every_s, carry_ms=carry_ms
    ):
        while True:
            try:
                await settle_old()
            except BokiError as error:
                log.warning("tables are looked through later", error=str(error))
            await asyncio.sleep(every_s)


async def trim(book: BookPort, stream: tuple[str, int], rows: dict[RowKey, int]) -> None:
    """Gives up what is in the database: of each row up to its newest record. The log remembers how new each was."""
    trimmer = Trimmer(book)
    for key, seqnum in rows.items():
        trimmer.add(tags.table_row(*key), seqnum + 1)
    await trimmer.flush()
    trimmer.add(stream[0], stream[1] + 1)
    await trimmer.flush()
