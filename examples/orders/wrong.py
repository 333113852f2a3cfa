"""Orders that go wrong: the code that meets them is slow, hangs, raises, exits, or ends its process.

The step `pick` and the handler call `go_wrong` with the order's `wrong`, which names a kind and a place. In a shop of yours the cause would
be a bug; here it is planted, so that you see how each one ends, and where Boki says so:

| kind | in the handler of the queue | in a step of the workflow |
|---|---|---|
| slow | | done, later; `boki flow steps` shows which step took the time |
| hanging | a dead letter: HandlerTimeout | failed: TimeoutError |
| raising | a dead letter: KeyError | failed: KeyError |
| exiting | a dead letter: HandlerExited | failed: StepFailed |
| poison | a dead letter: its process ended, each time | |

A step that ends its process is begun again by the next worker (`at_most_once=True` would end its workflow with StepInterrupted).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

SLOW_S: Final = 1.5
"""Longer than all of a good order, and shorter than a step may be."""

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
"""Kind and place → what Boki says of such an order."""


async def go_wrong(wrong: str, place: str) -> None:
    """Do what is planted in an order, if it belongs to this place: "handler" or "step"."""
    kind, _, planted = wrong.partition(" ")
    if planted != place:
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
        os.kill(os.getpid(), signal.SIGKILL)  # as a fault in native code would, or the kernel when memory is full
