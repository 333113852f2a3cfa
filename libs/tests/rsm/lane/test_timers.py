"""Timers of machines whose records were lost."""

from __future__ import annotations

from typing import Any

from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution
from bokirsm import App, Ask, Event, Host, Machine, Register, Rsm, State


class Start(Event):
    pass


class Tick(Event):
    pass


class Passed(Ask[float]):
    pass


class Clock(Machine[Start | Tick | Passed]):
    begun: Register[float] = Register(0.0)
    passed: Register[float] = Register(0.0)
    run = State(start=True)

    @run.on(Start)
    def start(self, e: Start) -> None:
        self.begun = self.now.timestamp()
        self.after(1.0, Tick())

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.passed = self.now.timestamp() - self.begun

    @run.on(Passed)
    def tell(self, e: Passed) -> None:
        self.reply(e, self.passed)


@in_virtual_time
async def test_a_timer_of_a_lost_record_does_not_fire_for_the_next_one() -> None:
    """The event is handled again, and its timer is set again by a commit of the same number."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        app = App("clocks", [Clock])
        host = Host(app, Log((await cluster.connect()).book("b")), name="one", stuck_after_s=None)
        async with Rsm(app, (await cluster.connect()).book("b")) as rsm, host:
            ref = await rsm.create(Clock, key="c")
            assert await rsm.ask(Passed().to(ref)) == 0.0
            append = host._log.append
            lost: list[Contribution] = []

            async def losing(one: Contribution, *, seen: int = 0, settle: bool = False, **options: Any) -> int:
                if not lost and any(getattr(event, "timers", ()) for event in one.events):
                    lost.append(one)
                    await let_pass(0.9)
                    raise Conflict("another partition of the record has another owner")
                return await append(one, seen=seen, settle=settle, **options)

            host._log.append = losing  # type: ignore[method-assign]
            await rsm.send(ref, Start())
            await let_pass(5.0)
            assert lost and await rsm.ask(Passed().to(ref)) >= 0.99
