"""Decisions of people about faults: an event is handled again, or dropped. They need no code of the machine."""

from __future__ import annotations

from typing import Any

from boki_common.errors import Trimmed
from bokilib.append.log import Log
from bokirsm import App, NoSuchMachine, Ref, Rsm
from bokirsm.model.partition_state import OpenFault
from bokirsm_tools.reading import ATTEMPTS, group_states


async def decide(log: Log, ref: Ref[Any], *, skip: bool) -> OpenFault | None:
    """Append a decision about the fault of a machine. Return the fault, or None if the machine has none.

    Args:
        log: of the book.
        ref: the machine.
        skip: drop the event that failed; otherwise it is handled again.

    Raises:
        AppendUnknown: the decision may be in the log; the same call may be repeated.
    """
    rsm = Rsm(App(ref.group, []), log)
    for left in reversed(range(ATTEMPTS)):
        states = await group_states(log, ref.group, [ref.partition])
        if states.unreadable:
            raise states.unreadable[ref.partition]
        fault = states.states[ref.partition].faults.get(str(ref))
        try:
            await (rsm.skip(ref) if skip else rsm.resume(ref))
            return fault
        except NoSuchMachine:
            return None
        except Trimmed:  # the owner made a checkpoint while the fault was read
            if not left:
                raise
    return None
