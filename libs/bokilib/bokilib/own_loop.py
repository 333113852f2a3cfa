"""Refusal of calls from outside of the event loop that an object belongs to, before anything is done.

Leases run by the clock of that loop, and heartbeats and appends are its tasks. The loop of a workflow has another clock, the log's.
"""

from __future__ import annotations

import asyncio

from boki_common.errors import WrongLoop
from boki_common.runtime import confined


def check_here(loop: asyncio.AbstractEventLoop | None, what: str, advice: str) -> None:
    """Check that `loop` runs here; None allows every loop but a workflow's.

    Args:
        loop: the loop that the object was entered in.
        what: the call or the object.
        advice: what to do instead.

    Raises:
        WrongLoop: another loop runs here, or none.
        NotInWorkflow: code of a workflow called.
    """
    running = asyncio._get_running_loop()
    if running is loop:
        return
    confined.check(what)
    if loop is not None:
        raise WrongLoop(
            f"expected {what} in the event loop that entered the object, found another one, or none: nothing was done; {advice}"
        )
