"""Clients of commands: they go on trying while no engine answers, and say so, until somebody has enough of it.

    async with connected(invocation) as client: ...        # for as long as --timeout says
    if await engine_answers(url, stop): ...                # for a role that is started before its engines

The SDK tells a program at once that no engine answers; a person who starts things in any order wants them to find each other.
What no retry mends (another version, a wrong URL) is raised at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from boki_common.errors import Unreachable
from boki_common.logs import get_logger

if TYPE_CHECKING:
    import boki
    from boki_cli.options import Invocation

PAUSE_S: Final = 0.2

_log = get_logger("client")


@asynccontextmanager
async def connected(invocation: Invocation, stop: asyncio.Event | None = None) -> AsyncIterator[boki.Client]:
    """The client of a command, closed behind it. Raises Unreachable: no engine answered within --timeout; InvalidArgument: a
    wrong URL. click.Abort: `stop` was set before."""
    seconds = invocation.timeout_s

    def waiting(error: Unreachable) -> None:
        invocation.say(f"{error} (`boki dev` starts everything.) Trying for {seconds:g} s; Ctrl-C ends it.")

    client = await _open(invocation.engines, seconds, seconds, waiting, stop)
    if client is None:
        raise click.Abort
    async with client:
        yield client


async def engine_answers(url: str, timeout_s: float, stop: asyncio.Event) -> bool:
    """Waits for an engine, however long that takes; False when `stop` was set before. `timeout_s`: for one attempt."""

    def waiting(error: Unreachable) -> None:
        _log.info("waiting for an engine", url=url, error=error)

    client = await _open(url, timeout_s, math.inf, waiting, stop)
    if client is not None:
        await client.close()
    return client is not None


async def _open(
    url: str,
    timeout_s: float,
    retry_for_s: float,
    waiting: Callable[[Unreachable], None],
    stop: asyncio.Event | None,
) -> boki.Client | None:
    """None: stopped. `waiting` is called once."""
    import boki

    stop = asyncio.Event() if stop is None else stop
    loop = asyncio.get_running_loop()
    deadline = loop.time() + retry_for_s
    warned = False
    while not stop.is_set():
        client = boki.connect(url, timeout=timeout_s)
        left_s = max(deadline - loop.time(), 0.0)
        try:
            async with asyncio.timeout(None if math.isinf(left_s) else left_s):
                return await client.open(wait=False)
        except TimeoutError as error:
            raise Unreachable(f"no engine at {url} answered within {retry_for_s:g} s; is it up?") from error
        except Unreachable as error:
            if loop.time() + PAUSE_S >= deadline:
                raise
            if not warned:
                waiting(error)
                warned = True
        try:
            async with asyncio.timeout(PAUSE_S):
                await stop.wait()
        except TimeoutError:
            pass  # try again
    return None
