"""Refusal of calls from outside of the event loop that a consumer or message belongs to."""

from __future__ import annotations

import asyncio
from typing import Final

from bokilib import own_loop

A_CONSUMER: Final = "a consumer, handler or message of a queue"
ADVICE: Final = "decide in that loop, or use bokiqueue.sync, which any thread may use"


def check_here(loop: asyncio.AbstractEventLoop | None) -> None:
    """Check that `loop` runs here; None allows every loop but a workflow's. Raises as `bokilib.own_loop.check_here`."""
    own_loop.check_here(loop, A_CONSUMER, ADVICE)
