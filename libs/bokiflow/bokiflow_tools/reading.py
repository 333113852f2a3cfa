"""The reader of one workflow: its start, claims, history, end and locks, from several streams of the log."""

from __future__ import annotations

from collections.abc import Sequence

import boki
from boki_common.errors import Trimmed
from bokiflow.errors import NoSuchWorkflow, ResultExpired
from bokiflow.history import inspection
from bokiflow.history.instance_state import InstanceState, Status, status_of
from bokiflow.model.delivery_order import RecordedEvents, begun_before
from bokiflow.model.flow_events import PICKER, Claimed, Ended, Invoked
from bokiflow.model.history_fold import History
from bokiflow_tools.timeline import Life, is_launch
from bokilib.append.log import Log
from bokilib.ports import ConsistencyName
from bokilib.records import tags


async def life_of(log: Log, id: str, *, consistency: ConsistencyName = "session") -> Life:
    """Read all that the log has of a workflow.

    Args:
        log: the log of the book.
        id: the workflow.
        consistency: how new the position is that the workflow is read at.

    Raises:
        NoSuchWorkflow: the book has no such workflow.
    """
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
    ended, result_kept = await _ended(log, id, held)
    claims = await _claims(log, id, position)
    timed = [(time_ms, event) for _, time_ms, event in claims]
    if history is None:
        started = begun_before(ended) if ended is not None and ended.group else None
        return Life(id, started, timed, ended, None, position, held=held, result_kept=result_kept)
    records = list(history.records)
    last = max((one.seqnum for one in records if one.own), default=0)
    waits_for, holds = ((), ()) if ended is not None else await inspection.locks_as_of(log, records)
    return Life(
        *(id, history.begins, timed, ended, records, position, held.blocked, held),
        origin=history.started.origin,
        result_kept=result_kept,
        idle_claims=sum(seqnum > last and bool(event.owner) and not event.since for seqnum, _, event in claims),
        waits_for=waits_for,
        holds=holds,
        launched=await _launched(log, records),
    )


async def _launched(log: Log, records: Sequence[RecordedEvents]) -> dict[str, Status]:
    """Return the status of each workflow that a history launched, as far as the log keeps it."""
    made = (event for one in records for event in one.own if isinstance(event, Invoked))
    ids = list(dict.fromkeys(event.child for event in made if is_launch(event)))
    states = await inspection.newest_of(log, ids)
    return {id: status_of(one.ended, one.blocked) for id, one in zip(ids, states, strict=True) if one is not None}


async def no_such_workflow(log: Log, id: str) -> NoSuchWorkflow:
    """Return the error that a book has no workflow of an id. If the book is empty, it hints that its name may be misspelt."""
    try:
        empty = await log.book.read_prev() is None
    except Trimmed:
        empty = False
    hint = (
        "the book has no records, is its name right?" if empty else "was it started in this book, and is it kept still?"
    )
    return NoSuchWorkflow(f"there is no workflow {id!r}: {hint}", id=id)


async def _claims(log: Log, id: str, last: int) -> list[tuple[int, int, Claimed]]:
    """Read the claims of a workflow up to a position, each with its seqnum and its time."""
    found: list[tuple[int, int, Claimed]] = []
    async for item in log.book.read(tags.flow_own(id), stop=last + 1):
        if not isinstance(item, boki.Gap):
            events = PICKER.of(item.seqnum, await log.open(item), about=id)
            found += [(item.seqnum, item.time_ms, event) for event in events if isinstance(event, Claimed)]
    return found


async def _ended(log: Log, id: str, held: InstanceState) -> tuple[Ended | None, bool]:
    """Read the end of a workflow, and whether its outcome is kept."""
    try:
        return await inspection.outcome_of(log, id, held), True
    except ResultExpired:  # the end outlasts the outcome
        return held.ended, False
