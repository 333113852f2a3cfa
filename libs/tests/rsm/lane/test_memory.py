"""The memory of a lane: what is dropped from it, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bokilib.errors import AtomicTooLarge
from bokirsm import App, Ask, Event, Machine, NoSuchMachine, Ref, State
from bokirsm.lane import lane
from libs.tests.rsm.conftest import NewHost
from libs.tests.rsm.upkeep import checkpoint


class Tick(Event):
    name: str
    text: str = ""


class Ring(Event):
    pass


class Count(Ask[int]):
    pass


class Halt(Event):
    pass


class Clock(Machine[Tick | Ring | Count | Halt]):
    run = State(start=True)

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.after(86_400, Ring(), name=e.name)

    @run.on(Ring)
    def ring(self, e: Ring) -> None: ...

    @run.on(Count)
    def count(self, e: Count) -> None:
        self.reply(e, 1)

    @run.on(Halt)
    def end(self, e: Halt) -> None:
        self.halt()


CLOCKS = App("clocks", [Clock])


async def test_timers_that_are_set_again_leave_little_in_memory(
    new_host: NewHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "LEAST_TIMERS", 10)
    async with await new_host(CLOCKS, name="h") as host:
        clock = await host.create(Clock, key="c")
        for number in range(40):
            await host.send_many([(clock, Tick("timeout")), (clock, Tick(f"t{number % 30}"))])
        assert await host.ask(Count().to(clock)) == 1
        entries = host.lane._timers
        state = host.lane._machines[str(clock)].state
        assert state is not None and len(state.timers) == 31 and len(entries) <= 2 * 31 + 10
        kept = {(due.firing.name, due.firing.times) for due in entries}
        assert kept >= {(name, (one.set_ms, one.due_ms, one.k)) for name, one in state.timers.items()}
        assert entries[0].due_s == min(due.due_s for due in entries)


async def test_machines_that_are_not_there_are_dropped_with_the_next_checkpoint(new_host: NewHost) -> None:
    async with await new_host(CLOCKS, name="h") as host:
        never: Ref[Count] = Ref("clocks", 5, "never")
        ended = await host.create(Clock, key="e", near=never)
        alive = await host.create(Clock, near=never)
        await host.send(ended, Halt())
        for machine in (never, ended):
            with pytest.raises(NoSuchMachine):
                await host.ask(Count().to(machine))
        await checkpoint(host, 5)
        assert await host.ask(Count().to(alive)) == 1 and list(host.lane._machines) == [str(alive)]
        for _ in range(2):
            for machine in (never, ended):
                with pytest.raises(NoSuchMachine):
                    await host.ask(Count().to(machine))
        await checkpoint(host, 5)
        assert list(host.lane._machines) == [str(alive)] and not host.lane._absent
        born = await host.create(Clock, key="never", near=never)
        assert await host.ask(Count().to(born)) == 1


async def test_an_event_to_one_that_ended_is_not_lost_by_a_checkpoint(new_host: NewHost) -> None:
    async with await new_host(CLOCKS, name="h") as host:
        clock, lane = await host.create(Clock, key="c"), host.lane
        await host.send(clock, Halt())
        with pytest.raises(NoSuchMachine):
            await host.ask(Count().to(clock))
        write = lane._writer.write
        asking: list[asyncio.Task[int]] = []

        async def while_it_waits(*args: Any) -> bool:
            lane._paused = True
            asking.append(asyncio.create_task(host.ask(Count().to(clock), timeout_s=300.0)))
            while not lane._machines[str(clock)].inbox:
                await asyncio.sleep(0)
            written = await write(*args)
            lane._paused = False
            return written

        lane._writer.write = while_it_waits  # type: ignore[method-assign, assignment]
        await checkpoint(host, clock.partition)
        lane._schedule()
        with pytest.raises(NoSuchMachine):
            await asking[0]


async def test_the_largest_event_fits_a_checkpoint(new_host: NewHost) -> None:
    async with await new_host(CLOCKS, name="h") as host:
        clock = await host.create(Clock, key="c")
        for sends in (lambda one: host.send(clock, one), lambda one: host.create(Clock, one)):
            with pytest.raises(AtomicTooLarge, match="expected an event of at most 507904 bytes"):
                await sends(Tick("x", "y" * 507_904))
            await sends(Tick("x", "y" * 507_000))
