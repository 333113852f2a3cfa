"""Rounds of recorded calls while faults strike: what a log may do is the same, whatever the network does.

A round is `boki_cli.trials.soak`'s: clients append, append under conditions and read, every call is recorded, payloads verify
themselves, and the history is held against `boki_sim.checkers`. Here faults strike meanwhile, drawn by a seed, and calls must
succeed again once the last of them has healed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import pytest

from boki_cli.stopwatch import seconds_now
from boki_cli.trials.soak import Soak

CLIENTS: Final = 4
ROUND_CALLS: Final = 200_000
"""More than a round makes: it is to last until the faults are over."""
CALL_TIMEOUT_S: Final = 15.0
QUIET_S: Final = 8.0
"""How long a round goes on after the last fault has healed."""
LONGEST_S: Final = 3_600.0
MOMENT_S: Final = 0.5
CALLS_AFTER: Final = 20
"""Successful calls that there must be in that time."""

Strike = Callable[[random.Random], Awaitable[str]]
"""Lets a fault begin, last and heal; says what it was."""


async def last(seconds: float, heal: Callable[[], Awaitable[object]]) -> None:
    """Lets a fault last, ends it, and gives everybody a moment before the next."""
    await asyncio.sleep(seconds)
    await heal()
    await asyncio.sleep(MOMENT_S)


async def round_under(
    url: str,
    strikes: Sequence[Strike],
    *,
    seed: int,
    seconds: float,
    on_heal: Callable[[], Awaitable[object]],
    describe: Callable[[], Awaitable[str]] | None = None,
) -> list[str]:
    """A round with one fault after another for so many seconds; returns what struck. Fails when anything is wrong.

    Args:
        describe: says how the cluster is, when calls do not succeed any more.
    """
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    soak = Soak(url, clients=CLIENTS, timeout_s=CALL_TIMEOUT_S, rng=chance, round_calls=ROUND_CALLS)
    struck: list[str] = []
    end = loop.time() + seconds
    begun = asyncio.Event()
    over = asyncio.Event()
    running = asyncio.create_task(
        soak.round(f"faults-{seed}", LONGEST_S, progress=lambda _: begun.set(), over=over.is_set)
    )
    try:
        await asyncio.wait([running, asyncio.ensure_future(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
        while loop.time() < end and not running.done():
            struck.append(await chance.choice(strikes)(chance))
        await on_heal()
        healed = seconds_now()
        await asyncio.wait([running], timeout=QUIET_S)
        over.set()
        done = await running
    finally:
        running.cancel()
    assert not done.findings, f"after {struck}: {done.findings[:3]}"
    assert not done.corrupt, f"after {struck}: {done.corrupt[:3]}"
    ended = [one.end for one in done.operations if one.outcome in ("ok", "conflict") and one.end is not None]
    after = sum(end > healed for end in ended)
    if after < CALLS_AFTER:
        waiting = [one for one in done.operations if one.end is None or one.end > healed]
        pytest.fail(
            f"{after} calls succeeded after {struck} had healed, {len(ended) - after} before; under way or after: "
            f"{waiting[:8]}; {await describe() if describe else ''}"
        )
    return struck
