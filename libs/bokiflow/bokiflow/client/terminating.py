"""Ends a workflow without its code, from outside: one that is blocked, one that no worker has the code of, one that ignores `cancel`.

1. A claim that expects the newest one blocks the workflow (`Terminated`): the worker that runs it records nothing more. Not needed where
   the workflow is blocked already: nothing can be recorded under such a claim.
2. What it had begun is read; its children are cancelled, its locks are released, its parent is told, and its end is recorded.

Both are conditional on the newest claim, so a worker that takes the workflow over between them makes this begin again. If this program
dies between them, the worker that owns the workflow's partition does the second when it takes it over, and so does a second call.
"""

from __future__ import annotations

from boki_common.errors import Conflict
from bokiflow.client.results import NOT_THERE
from bokiflow.errors import NoSuchWorkflow
from bokiflow.history import inspection
from bokiflow.history.ends import REASON_CHARS, TERMINATED, end_of_blocked, end_without_code
from bokiflow.history.instance_state import Held
from bokiflow.model import records
from bokiflow.model.flow_events import Claimed, Terminated
from bokiflow.model.outcomes import terminated
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution, joined


async def terminate(log: Log, id: str, reason: str) -> None:
    """End a workflow; one that has ended stays as it is.

    Raises:
        NoSuchWorkflow. Errors of the log: call it again.
    """
    while True:
        state = await inspection.newest(log, id, consistency="linearizable")
        there = None if state is None else await inspection.call_of(log, id, state)
        if state is None or there is None:
            raise NoSuchWorkflow(f"there is no workflow {id!r}: {NOT_THERE}", id=id)
        if state.ended is not None:
            return
        place = records.Place(id, there.group)
        try:
            if state.blocked:
                await _end(log, place, state, reason)
                return
            blocked = f"{TERMINATED}: {reason}"[:REASON_CHARS]
            claimed = Claimed(id, "", 0, there.start, there.name, there.digest, there.group, blocked=blocked)
            await log.append(records.claim(place, claimed, state.claim, None), settle=True)
        except Conflict:
            continue  # a worker has taken it over, or ended it


async def _end(log: Log, place: records.Place, state: Held, reason: str) -> None:
    """End a workflow that is blocked. Raises Conflict: it was claimed since, or has ended."""
    history = await inspection.whole_history(log, place.id, consistency="linearizable")
    now_ms = max(log.now_ms(), max((one.time_ms for one in history.records), default=0))
    ended = end_of_blocked(history, terminated(reason), now_ms)
    *before, last = end_without_code(place, history, ended, state.claim, None)
    for part in before:
        await log.append(part, settle=True)
    told = Contribution((place.to,), {}, (Terminated(place.id),))
    await log.append(joined([last, told]), settle=True)
