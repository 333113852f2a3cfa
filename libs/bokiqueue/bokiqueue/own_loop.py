"""Refusal of calls from outside of the event loop that a consumer or message belongs to, before anything is done.

Leases run by the clock of that loop, and appends are its tasks. The loop of a workflow has another clock, the log's.
"""

from __future__ import annotations

import asyncio
from typing import Final

from boki_common.errors import WrongLoop
from boki_common.runtime import confined

A_CONSUMER: Final = "a consumer, handler or message of a queue"


def check_here(loop: asyncio.AbstractEventLoop | None) -> None:
    """Check that `loop` runs here; None allows every loop but a workflow's.

    Raises:
        WrongLoop: another loop runs here, or none.
        NotInWorkflow: code of a workflow called.
    """
    running = asyncio._get_running_loop()
    if running is loop:
        return
    confined.check(A_CONSUMER)
    if loop is not None:
        raise WrongLoop(
            "a consumer and its messages belong to the event loop that entered the consumer, another one runs here: nothing was done; "
            "decide there, or use bokiqueue.sync, which any thread may use"
        )
