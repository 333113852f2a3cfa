"""Days in which nothing happens but what programs set their timers for: they take the simulation no time.

    await rest(loop, 3 * 86_400, programs)

An idle cluster beats its hearts: a few hundred callbacks a second, twenty million a day. So while a test *rests*, time leaps from
one far timer of a program to the next; around each of them everybody is awake. What a leap is to whom:

- the roles' machines are suspended: their loops' clocks stand still, wall clock and uptime run on, as on a laptop that is closed;
- programs are stopped, as by SIGSTOP, but what is due soon (`FAR_S`) comes that much later: a question that is under way is not
  timed out by the leap, a program that looks every second does not look in it;
- timers of programs that are farther away than `FAR_S` come when they are due, as do those of whoever is started meanwhile.

So the work of a rest grows with the far timers in it, not with its length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify
from typing import Final

from boki_common.errors import InvalidArgument
from boki_sim.world.handles import SimTimer
from boki_sim.world.loop import SimLoop, Timer
from boki_sim.world.process import SimProcess

FAR_S: Final = 90.0
"""Longer than what keeps connections and sessions alive."""
AWAKE_S: Final = 15.0
"""Everybody runs so long before a far timer, and behind it: clients are connected again by then."""


async def rest(
    loop: SimLoop, seconds: float, is_program: Callable[[SimProcess], bool], roles: Callable[[], list[SimProcess]]
) -> None:
    """Lets so much time go by. Only when all faults are over: nothing may be paused, asleep or held.

    Args:
        is_program: whose far timers are waited for.
        roles: processes whose machines are suspended meanwhile.

    Raises:
        InvalidArgument: a time that is none.
    """
    if not seconds >= 0:
        raise InvalidArgument(f"expected seconds to rest, 0 or more, found {seconds}")
    end = loop.now + seconds
    while loop.now < end:
        await asyncio.sleep(min(AWAKE_S, end - loop.now))
        far = _far_timers(loop, is_program)
        until = min([end, *(entry[0] for entry in far)])
        leap_s = until - AWAKE_S - loop.now
        if leap_s > AWAKE_S:
            for process in roles():
                process.slept_s += leap_s
            _leap(loop, leap_s, far)
        if until > loop.now:
            await asyncio.sleep(until - loop.now)


def _far_timers(loop: SimLoop, is_program: Callable[[SimProcess], bool]) -> list[Timer]:
    """Those of living programs that are set for later than `FAR_S`."""
    return [
        entry
        for entry in loop.timers
        if entry[0] > loop.now + FAR_S
        and type(entry[2]) is SimTimer
        and not entry[2].cancelled()
        and entry[3].alive
        and is_program(entry[3])
        and not _of_sdk(entry[2])
    ]


def _of_sdk(timer: SimTimer) -> bool:
    """Whether the SDK set it for itself, to look after a connection."""
    return str(getattr(timer._callback, "__module__", "")).partition(".")[0] in ("boki", "boki_common")


def _leap(loop: SimLoop, seconds: float, far: list[Timer]) -> None:
    """All that waits, waits so much longer, but for those far timers."""
    stay = {entry[1] for entry in far}
    loop.now += seconds
    loop.timers[:] = [entry if entry[1] in stay else (entry[0] + seconds, *entry[1:]) for entry in loop.timers]
    heapify(loop.timers)
