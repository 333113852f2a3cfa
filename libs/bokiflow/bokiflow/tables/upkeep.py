"""Retention of tables: bring the database up to date with the log, so that the log can trim the changes of rows.

Each process with entered tables checks from time to time whether the log has changes of rows that are as old as a term, and settles these
tables. One process at a time also rewrites the definitions of tables out of old terms (`carrying`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.tables.carrying import TablesCarried
from bokiflow.tables.rows import RowKey, TableRow
from bokiflow.tables.table_events import PICKER, Written
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.retention.carrier import Carrier
from bokilib.retention.trimmer import Trimmer

ROWS_AT_ONCE: Final = 100

log = get_logger(__name__)


class Settled(NamedTuple):
    """The result of settling a table.

    Attributes:
        rows: rows with changes in the log; in mode `lwt`, expired outcomes of operations.
        behind: rows of which the database lacked a change.
    """

    rows: int
    behind: int


async def changed(opened: Log, table: str) -> tuple[tuple[str, int], dict[RowKey, int]]:
    """Read the stream of a table.

    Returns:
        The stream with the position up to which it was read, and the newest record of each row in it.
    """
    tag = tags.table_rows(table)
    position = await opened.book.now(consistency="linearizable")
    found: dict[RowKey, int] = {}
    async for item in opened.book.read(tag, start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            continue  # trimmed, since a process has settled the table up to there
        for event in PICKER.of(item.seqnum, await opened.open(item), table):
            if isinstance(event, Written):
                found[RowKey(table, event.key)] = item.seqnum
    return (tag, position), found


def behind(stored: Iterable[TableRow], newest: Mapping[RowKey, int]) -> int:
    """Return the number of rows whose stored version is older than their newest record."""
    return sum(row.version < newest[row.key] for row in stored)


async def is_old(opened: Log, table: str, carry_ms: int) -> bool:
    """Return whether the oldest change of a row in the log is `carry_ms` older than the newest record of the book."""
    newest = await opened.book.read_prev(consistency="linearizable")
    if newest is not None:
        async for item in opened.book.read(tags.table_rows(table), start=1, stop=newest.seqnum + 1):
            if isinstance(item, boki.Record):
                return newest.time_ms - item.time_ms >= carry_ms
    return False


async def tried(table: str, settling: Awaitable[object]) -> bool:
    """Settle a table, and return whether that succeeded; an error is logged, and the next round tries again."""
    try:
        await settling
    except BokiError as error:
        log.warning("table not settled: its terms are kept", table=table, error=str(error))
        return False
    return True


async def keep(opened: Log, settle_old: Callable[[], Awaitable[object]], *, every_s: float, carry_ms: int) -> None:
    """Settle old tables and rewrite definitions every `every_s`, until cancelled; the first round is after `every_s`."""
    await asyncio.sleep(every_s)
    async with Carrier(
        opened, [TablesCarried(opened)], who=f"tables of {opened.by}", every_s=every_s, carry_ms=carry_ms
    ):
        while True:
            try:
                await settle_old()
            except BokiError as error:
                log.warning("round of settling tables failed: it is repeated later", error=str(error))
            await asyncio.sleep(every_s)


async def trim(book: BookPort, stream: tuple[str, int], rows: dict[RowKey, int]) -> None:
    """Trim the changes that the database has: the streams of these rows and that of their table.

    The log remembers up to where a stream is trimmed, so a row that is restored to an older version is recognised.
    """
    trimmer = Trimmer(book)
    for key, seqnum in rows.items():
        trimmer.add(tags.table_row(*key), seqnum + 1)
    await trimmer.flush()
    trimmer.add(stream[0], stream[1] + 1)
    await trimmer.flush()
