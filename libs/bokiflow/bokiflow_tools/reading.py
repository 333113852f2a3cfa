"""Reads all that the log keeps of one workflow."""

from __future__ import annotations

import boki
from boki_common.errors import Trimmed
from bokiflow import inspection
from bokiflow.errors import NoSuchWorkflow
from bokiflow.flow_events import PICKER, Claimed, Ended, Started
from bokiflow.history import Recorded
from bokiflow_tools.life import Life
from bokilib import tags
from bokilib.log import Log
from bokilib.ports import ConsistencyName


async def life_of(log: Log, id: str, *, consistency: ConsistencyName = "session") -> Life:
    """Reads it. Raises NoSuchWorkflow."""
    position = await log.book.now(consistency=consistency)
    started: Started | None = None
    ended: Ended | None = None
    claims: list[tuple[int, Claimed]] = []
    async for item in log.book.read(tags.flow_own(id), stop=position + 1):
        if isinstance(item, boki.Gap):
            continue
        for event in PICKER.of(item.seqnum, await log.open(item), about=id):
            if isinstance(event, Started):
                started = event
            elif isinstance(event, Claimed):
                claims.append((item.time_ms, event))
            elif isinstance(event, Ended):
                ended = event
    if started is None and ended is None and not claims:
        raise NoSuchWorkflow(f"there is no workflow {id!r}: was it started in this book, and is it kept still?", id=id)
    records: list[Recorded] | None = None
    try:
        records = await inspection.history(log, id, position)
    except Trimmed:
        if ended is None:
            raise
    return Life(id, started, claims, ended, records, position)
