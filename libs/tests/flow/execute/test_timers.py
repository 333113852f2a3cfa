"""Timers: how long they wait yet, and that each is reported once."""

from __future__ import annotations

import asyncio

import pytest

from bokiflow.execute.inbox import TimerDue
from bokiflow.execute.timers import DurableTimers
from bokiflow.runtime.commands import SetTimer
from bokiflow.testing import in_virtual_time

HOUR_MS = 3_600_000


class StandingTime:
    """A log's time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.ms = HOUR_MS

    def now_ms(self) -> int:
        return self.ms


@pytest.mark.parametrize("by_calendar", [False, True])
@in_virtual_time
async def test_a_timer_is_reported_once_and_one_of_a_calendar_until_the_log_is_there(by_calendar: bool) -> None:
    log, loop = StandingTime(), asyncio.get_running_loop()
    due_timers: asyncio.Queue[TimerDue] = asyncio.Queue()
    timers = DurableTimers(log, due_timers.put_nowait, by_calendar=by_calendar)
    began_s, ask = loop.time(), SetTimer("0:1", HOUR_MS + 10_000)
    timers.set(ask, HOUR_MS)
    due = await due_timers.get()
    assert loop.time() - began_s == 10 and timers.fires(due.command, HOUR_MS) is not by_calendar
    if by_calendar:
        log.ms += 7_000
        due = await due_timers.get()
        assert loop.time() - began_s == 20 and not timers.fires(due.command, HOUR_MS)
        log.ms += 3_000
        due = await due_timers.get()
        assert loop.time() - began_s == 23 and timers.fires(due.command, HOUR_MS)
    assert not timers.fires(due.command, HOUR_MS) and not timers.unset("0:1")


@in_virtual_time
async def test_what_is_unset_or_stopped_is_never_due() -> None:
    due_timers: list[TimerDue] = []
    timers = DurableTimers(StandingTime(), due_timers.append, by_calendar=False)
    for key in ("a", "b"):
        timers.set(SetTimer(key, HOUR_MS + 1), HOUR_MS)
    assert timers.unset("a") and not timers.unset("a")
    timers.stop()
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(1, passed.set_result, None)
    await passed
    assert due_timers == []
