"""What changed of a table since it was last brought up to date, and what the log need not keep of it once it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import boki
from bokiflow.tables.rows import Row, RowKey
from bokiflow.tables.table_events import PICKER, Written
from bokilib import tags
from bokilib.log import Log
from bokilib.ports import BookPort
from bokilib.trimmer import Trimmer

ROWS_AT_ONCE: Final = 100


class Settled(NamedTuple):
    """`rows`: that had changed. `behind`: of which the database lacked something."""

    rows: int
    behind: int


async def changed(log: Log, table: str) -> tuple[tuple[str, int], dict[RowKey, int]]:
    """The table's stream and how far it was read; of each row that is in it the newest record."""
    tag = tags.table_rows(table)
    position = await log.book.now(consistency="linearizable")
    found: dict[RowKey, int] = {}
    async for item in log.book.read(tag, start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            continue  # trimmed: somebody has brought that up to date
        for event in PICKER.of(item.seqnum, await log.open(item), table):
            if isinstance(event, Written):
                found[RowKey(table, event.key)] = item.seqnum
    return (tag, position), found


def behind(stored: Iterable[Row], newest: Mapping[RowKey, int]) -> int:
    """Of how many rows something is not stored."""
    return sum(row.version < newest[row.key] for row in stored)


async def trim(book: BookPort, stream: tuple[str, int], rows: dict[RowKey, int]) -> None:
    """Gives up what is in the database: of each row up to its newest record. The log remembers how new each was."""
    trimmer = Trimmer(book)
    for key, seqnum in rows.items():
        trimmer.add(tags.table_row(*key), seqnum + 1)
    await trimmer.flush()
    trimmer.add(stream[0], stream[1] + 1)
    await trimmer.flush()
