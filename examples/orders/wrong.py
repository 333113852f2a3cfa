"""Bad orders: the code that they meet is slow, hangs, raises, exits, or kills its process.

The handler and the step `pick` call `go_wrong` with the order's `wrong`, which names a kind and a place. In a real shop the cause would be
a bug; here it is planned, to show how each bad order ends and where Boki reports it:

| kind | in the handler of the queue | in a step of the workflow |
|---|---|---|
| slow | | succeeds later; `boki flow steps` shows which step took the time |
| hanging | dead letter: HandlerTimeout | failed: TimeoutError |
| raising | dead letter: KeyError | failed: KeyError |
| exiting | dead letter: HandlerExited | failed: StepFailed |
| poison | dead letter: the process died in every attempt | |

A step that kills its process is run again by the next worker; with `at_most_once=True` its workflow would fail with StepInterrupted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

SLOW_S: Final = 1.5
"""Longer than a good order takes, and shorter than the time-out of the step."""

WRONG: Final[Mapping[str, str]] = {
    "hanging handler": "HandlerTimeout",
    "raising handler": "KeyError('no price')",
    "exiting handler": "HandlerExited",
    "poison handler": "the process ended while this message was alone with it",
    "slow step": "sent 0 apples",
    "hanging step": "TimeoutError",
    "raising step": "KeyError: 'no price'",
    "exiting step": "StepFailed",
}
"""Kind and place → text with which Boki reports such an order."""


async def go_wrong(wrong: str, place: str) -> None:
    """Do what `wrong` says if it concerns this place, which is "handler" or "step"."""
    kind, _, planned = wrong.partition(" ")
    if planned != place:
        return
    if kind == "slow":
        await asyncio.sleep(SLOW_S)
    elif kind == "hanging":
        await asyncio.Event().wait()
    elif kind == "raising":
        raise KeyError("no price")
    elif kind == "exiting":
        sys.exit(3)
    elif kind == "poison":
        os.kill(os.getpid(), signal.SIGKILL)  # like a crash in native code, or the kernel when memory is full
