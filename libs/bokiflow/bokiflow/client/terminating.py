"""Termination: end a workflow without its code, because it is blocked, no worker has its code, or it ignores `cancel`.

1. A claim that expects the newest one blocks the workflow (`Terminated`), so that its worker can record nothing more. A workflow that is
   blocked already needs no such claim.
2. The history is read, and records cancel its children, release its locks, send its end to the parent, and end it.

Both steps expect the newest claim: if a worker takes the workflow over in between, termination starts over. If this program dies in
between, the worker that owns the workflow's partition does the second step when it takes the workflow over; so does a second call.
"""

from __future__ import annotations

from contextlib import ExitStack

from boki_common.errors import Conflict
from bokiflow.client.results import NOT_THERE
from bokiflow.errors import NoSuchWorkflow
from bokiflow.history import inspection
from bokiflow.history.ends import REASON_CHARS, TERMINATED, end_of_blocked, end_without_code
from bokiflow.history.instance_state import InstanceState
from bokiflow.model import records
from bokiflow.model.flow_events import Claimed, Terminated
from bokiflow.model.outcomes import terminated
from bokilib.append.log import Log
from bokilib.errors import partly_applied
from bokilib.records.contribution import Contribution, joined


async def terminate(log: Log, id: str, reason: str) -> None:
    """End a workflow; one that has ended stays as it is.

    A workflow that runs is blocked first, which stops its worker, and then ended.

    Raises:
        NoSuchWorkflow: no workflow has this id.
        PartlyApplied: the workflow is blocked, but not ended; call again.
        BokiError: an error of the log; call again.
    """
    with ExitStack() as begun:
        while True:
            try:
                if await _terminate_once(log, id, reason):
                    return
            except Conflict:
                continue  # a worker has taken the workflow over, or ended it
            begun.enter_context(partly_applied(f"workflow {id!r} is blocked; call again to end it"))


async def _terminate_once(log: Log, id: str, reason: str) -> bool:
    """End a workflow that is blocked, or block one that is not; return whether it has ended.

    Raises:
        Conflict: a worker has taken it over, or ended it.
    """
    state = await inspection.newest(log, id, consistency="linearizable")
    there = None if state is None else await inspection.started_call(log, id, state)
    if state is None or there is None:
        raise NoSuchWorkflow(f"there is no workflow {id!r}: {NOT_THERE}", id=id)
    if state.ended is not None:
        return True
    place = records.InstanceStreams(id, there.group)
    if state.blocked:
        await _end(log, place, state, reason)
        return True
    blocked = f"{TERMINATED}: {reason}"[:REASON_CHARS]
    claimed = Claimed(
        *(id, "", 0, there.start, there.name, there.digest, there.group), blocked=blocked, own_uniques=state.own_uniques
    )
    await log.append(records.claim(place, claimed, state.claim, None), settle=True)
    return False


async def _end(log: Log, place: records.InstanceStreams, state: InstanceState, reason: str) -> None:
    """End a blocked workflow.

    Raises:
        Conflict: the workflow was claimed since, or has ended.
    """
    history = await inspection.whole_history(log, place.id, consistency="linearizable")
    now_ms = max(log.now_ms(), max((one.time_ms for one in history.records), default=0))
    ended = end_of_blocked(history, terminated(reason), now_ms)
    *before, last = end_without_code(place, history, ended, state.claim, None)
    told = Contribution((place.to_workers,), {}, (Terminated(place.id),))
    with ExitStack() as begun:
        for part in before:
            await log.append(part, settle=True)
            begun.enter_context(partly_applied(f"workflow {place.id!r} is not ended yet; call again to end it"))
        await log.append(joined([last, told]), settle=True)
