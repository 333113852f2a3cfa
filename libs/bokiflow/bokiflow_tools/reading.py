"""Reads all that the log keeps of one workflow."""

from __future__ import annotations

import boki
from boki_common.errors import Trimmed
from bokiflow import inspection
from bokiflow.errors import NoSuchWorkflow, ResultExpired
from bokiflow.flow_events import PICKER, Claimed, Ended
from bokiflow.histories import History
from bokiflow.instance_state import Held
from bokiflow_tools.life import Life
from bokilib import tags
from bokilib.log import Log
from bokilib.ports import ConsistencyName


async def life_of(log: Log, id: str, *, consistency: ConsistencyName = "session") -> Life:
    """Reads it. Raises NoSuchWorkflow."""
    position = await log.book.now(consistency=consistency)
    held = await inspection.newest(log, id)
    if held is None:
        raise await no_such_workflow(log, id)
    history: History | None = None
    try:
        history = await inspection.whole_history(log, id)
    except Trimmed:
        if held.ended is None:
            raise
    started = None if history is None else history.begins
    records = None if history is None else list(history.records)
    ended = await _ended(log, id, held)
    origin = "" if history is None else history.started.origin
    return Life(id, started, await _claims(log, id, position), ended, records, position, held.blocked, held, origin)


async def no_such_workflow(log: Log, id: str) -> NoSuchWorkflow:
    """Return the error that a book has no workflow of an id. A book without records may be a name that was misspelt."""
    try:
        empty = await log.book.read_prev() is None
    except Trimmed:
        empty = False
    hint = (
        "the book has no records, is its name right?" if empty else "was it started in this book, and is it kept still?"
    )
    return NoSuchWorkflow(f"there is no workflow {id!r}: {hint}", id=id)


async def _claims(log: Log, id: str, last: int) -> list[tuple[int, Claimed]]:
    found: list[tuple[int, Claimed]] = []
    async for item in log.book.read(tags.flow_own(id), stop=last + 1):
        if not isinstance(item, boki.Gap):
            events = PICKER.of(item.seqnum, await log.open(item), about=id)
            found += [(item.time_ms, event) for event in events if isinstance(event, Claimed)]
    return found


async def _ended(log: Log, id: str, held: Held) -> Ended | None:
    try:
        return await inspection.outcome_of(log, id, held)
    except ResultExpired:  # that it ended is known still
        return held.ended
