"""Versions of rows (mode `versioned`): a row as it was at any place of the log, and which versions nobody looks at any more.

The newest record of a row up to a place has all that the row was there. What the log has given up is in the table: it is trimmed only
once it is there. Whoever deletes versions raises the floor in the log before, and whoever has looked in the table asks the log afterwards:
so nobody takes for nothing what is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import boki
from boki_common.errors import Conflict, Trimmed
from bokiflow.client.flow import Flow
from bokiflow.history import inspection
from bokiflow.tables.errors import VersionsGone
from bokiflow.tables.ports import TablePort
from bokiflow.tables.rows import Row, RowKey, stored_row
from bokiflow.tables.schema import Schema
from bokiflow.tables.table_events import PICKER, Collected, Written
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.trimmer import Trimmer


async def of_log(log: Log, table: str, keys: Sequence[str], place: int) -> list[Row | None]:
    """Rows as they were at a place that the session has seen; None: the log has nothing of it."""
    try:
        records = await log.book.read_prev_many([(tags.table_row(table, key), place) for key in keys])
    except Trimmed:  # some have no version of before that place in the log: one by one
        return list(await asyncio.gather(*(_of_log(log, table, key, place) for key in keys)))
    return [
        None
        if record is None
        else await _of_record(log, table, key, record) or await _of_log(log, table, key, record.seqnum - 1)
        for key, record in zip(keys, records, strict=True)
    ]


async def of_table(log: Log, port: TablePort, schema: Schema, keys: Sequence[str], place: int) -> list[Row]:
    """Rows as they were at a place, of which the log has nothing. Raises VersionsGone, TableUnavailable, ForeignWrite."""
    read = await asyncio.gather(*(port.read_at(schema, key, place) for key in keys))
    gone = await floor(log, schema.name)
    if place < gone:
        raise VersionsGone(
            f"table {schema.name!r} is looked at as of {place}, and versions of before {gone} are collected: give `collect` all "
            "groups of workers that look at it",
            table=schema.name,
            expected=gone,
            found=place,
        )
    return [stored_row(RowKey(schema.name, key), stored) for key, stored in zip(keys, read, strict=True)]


async def _of_log(log: Log, table: str, key: str, place: int) -> Row | None:
    """A row from its newest record up to a place; None: the log has none."""
    at_most = place
    while at_most > 0:
        try:
            record = await log.book.read_prev(tags.table_row(table, key), at_most=at_most)
        except Trimmed:
            return None
        if record is None:
            return None
        row = await _of_record(log, table, key, record)
        if row is not None:
            return row
        at_most = record.seqnum - 1  # of another row with this tag
    return None


async def _of_record(log: Log, table: str, key: str, record: boki.Record) -> Row | None:
    for event in PICKER.of(record.seqnum, await log.open(record), about=table):
        if isinstance(event, Written) and event.key == key:
            return Row(RowKey(table, key), record.seqnum, None if event.gone else dict(event.cells))
    return None


# -- what nobody looks at any more


async def floor(log: Log, table: str) -> int:
    """Below which place versions may be gone; 0: none are."""
    return (await _floor(log, table))[0]


async def _floor(log: Log, table: str) -> tuple[int, int | None]:
    """The same, and the seqnum of its record."""
    record = await log.book.read_prev(tags.table_floor(table), consistency="linearizable")
    if record is None:
        return 0, None
    floors = [one for one in PICKER.of(record.seqnum, await log.open(record), table) if isinstance(one, Collected)]
    return (floors[-1].floor, record.seqnum) if floors else (0, record.seqnum)


async def raise_floor(log: Log, table: str, place: int) -> int:
    """Records that versions of before a place may be gone; returns the floor of now, which somebody else may have raised higher."""
    tag = tags.table_floor(table)
    while True:
        known, at = await _floor(log, table)
        if known >= place:
            return known
        try:
            seqnum = await log.append(Contribution((tag,), {tag: at}, (Collected(table, place),)), settle=True)
        except Conflict:
            continue
        trimmer = Trimmer(log.book)
        trimmer.add(tag, seqnum)
        await trimmer.flush()
        return place


async def oldest_place(log: Log, flows: Sequence[Flow]) -> int:
    """A place below which no workflow of these groups looks, those included that are started from now on."""
    place = await log.book.now(consistency="linearizable")
    for flow in flows:
        place = min([place, *await inspection.unfinished(log, flow.group)])
    return place


async def drop(port: TablePort, schema: Schema, key: str, place: int) -> None:
    """Deletes versions of a row that only who looks as of before a place would need."""
    stored = await port.read_at(schema, key, place)
    version = stored_row(RowKey(schema.name, key), stored).version
    if version:
        await port.drop_below(schema, key, version)
