"""Versions of rows (mode `versioned`): read a row as of any place of the log, and delete old versions.

The newest record of a row up to a place has all cells of the row as of that place. A record that the log has trimmed is in the table: it
is trimmed only after it was stored. A process raises the floor in the log before it deletes versions, and a reader of the table reads the
floor afterwards: so a deleted version is never taken for a row that does not exist.
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
from bokiflow.tables.schema import PICKER, Collected, RowKey, Schema, TableRow, Written, stored_row
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.trimmer import Trimmer


async def of_log(log: Log, table: str, keys: Sequence[str], place: int) -> list[TableRow | None]:
    """Read rows from the log as of a place that the session has seen; None for a row without a record there."""
    try:
        records = await log.book.read_prev_many([(tags.table_row(table, key), place) for key in keys])
    except Trimmed:  # the log has trimmed the version of some row: read them one by one
        return list(await asyncio.gather(*(_of_log(log, table, key, place) for key in keys)))
    return [
        None
        if record is None
        else await _of_record(log, table, key, record) or await _of_log(log, table, key, record.seqnum - 1)
        for key, record in zip(keys, records, strict=True)
    ]


async def of_table(log: Log, port: TablePort, schema: Schema, keys: Sequence[str], place: int) -> list[TableRow]:
    """Read rows from the table as of a place.

    Raises:
        VersionsGone: versions as of this place may be deleted.
        TableUnavailable: the database does not answer.
        ForeignWrite: another program wrote a row without the log.
    """
    read = await asyncio.gather(*(port.read_at(schema, key, place) for key in keys))
    gone = await floor(log, schema.name)
    if place < gone:
        raise VersionsGone(
            f"table {schema.name!r} is read as of {place}, and versions before {gone} are deleted: pass every group of workers that "
            "looks at it to `collect`",
            table=schema.name,
            expected=gone,
            found=place,
        )
    return [stored_row(RowKey(schema.name, key), stored) for key, stored in zip(keys, read, strict=True)]


async def _of_log(log: Log, table: str, key: str, place: int) -> TableRow | None:
    """Read a row from its newest record up to a place; None if the log has none."""
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
        at_most = record.seqnum - 1  # the record is about another row with the same tag
    return None


async def _of_record(log: Log, table: str, key: str, record: boki.Record) -> TableRow | None:
    for event in PICKER.of(record.seqnum, await log.open(record), about=table):
        if isinstance(event, Written) and event.key == key:
            return TableRow(RowKey(table, key), record.seqnum, None if event.gone else dict(event.cells))
    return None


# -- retention


async def floor(log: Log, table: str) -> int:
    """Read the place below which versions may be deleted; 0 if none are."""
    return (await _floor(log, table))[0]


async def _floor(log: Log, table: str) -> tuple[int, int | None]:
    """Read the floor, and the seqnum of its record."""
    record = await log.book.read_prev(tags.table_floor(table), consistency="linearizable")
    if record is None:
        return 0, None
    floors = [one for one in PICKER.of(record.seqnum, await log.open(record), table) if isinstance(one, Collected)]
    return (floors[-1].floor, record.seqnum) if floors else (0, record.seqnum)


async def raise_floor(log: Log, table: str, place: int) -> int:
    """Record that versions below a place may be deleted; return the floor, which another process may have raised further."""
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
    """Return a place below which no workflow of these groups looks, including workflows that start from now on."""
    place = await log.book.now(consistency="linearizable")
    for flow in flows:
        place = min([place, *await inspection.unfinished(log, flow.group)])
    return place


async def drop(port: TablePort, schema: Schema, key: str, place: int) -> None:
    """Delete the versions of a row that only reads as of places below `place` would need."""
    stored = await port.read_at(schema, key, place)
    version = stored_row(RowKey(schema.name, key), stored).version
    if version:
        await port.drop_below(schema, key, version)
