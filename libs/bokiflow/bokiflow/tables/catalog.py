"""What a table is: the newest record of its catalog stream; whoever opens it finds it, or is the first."""

from __future__ import annotations

from typing import Final

from boki_common.errors import Conflict
from bokiflow.tables.schema import Schema, merged
from bokiflow.tables.table_events import PICKER, Made
from bokilib.append.log import Log
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.records.contribution import Contribution

ATTEMPTS: Final = 32


async def newest(log: Log, table: str, *, consistency: ConsistencyName = "linearizable") -> tuple[Made, int] | None:
    """The newest record of what a table is; None: nobody made it in this book."""
    tag = tags.table_catalog(table)
    record = await log.book.read_prev(tag, consistency=consistency)
    if record is None:
        return None
    made = [event for event in PICKER.of(record.seqnum, await log.open(record), table) if isinstance(event, Made)]
    return (made[-1], record.seqnum) if made else None


async def ensured(log: Log, schema: Schema) -> tuple[Made, int]:
    """What the table is, with all that the schema wants of it. Raises TableRefused: that cannot be."""
    for attempt in range(ATTEMPTS):
        found = await newest(log, schema.name)
        if found is None:
            wanted, last = Made(schema.name, schema.mode, schema.columns, f"{log.by}"), None
        else:
            made, last = found
            whole = merged(Schema(made.id, made.columns, made.mode), schema)
            if whole.columns == made.columns:
                return found
            wanted = Made(made.id, made.mode, whole.columns, made.token)
        tag = tags.table_catalog(schema.name)
        try:
            return wanted, await log.append(Contribution((tag,), {tag: last}, (wanted,)), settle=True)
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("it returns or raises")
