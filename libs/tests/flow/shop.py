"""Workflows that tests share: each feature once. Bodies note that they ran, so that a test sees how often."""

from __future__ import annotations

import asyncio

import bokiflow
from bokiflow import App, Retry


class Steps:
    """Steps, and what their bodies did."""

    def __init__(self, app: App) -> None:
        self.ran: list[str] = []
        self.fails = 0

        @app.step
        async def add(a: int, b: int) -> int:
            self.ran.append(f"add {a} {b}")
            return a + b

        @app.step
        def double(a: int) -> int:
            self.ran.append(f"double {a}")
            return a * 2

        @app.step(retry=Retry(attempts=3, delay_s=0))
        async def flaky(a: int) -> int:
            self.ran.append("flaky")
            if self.fails > 0:
                self.fails -= 1
                raise OSError("not now")
            return a

        @app.step
        async def refuse(why: str) -> None:
            self.ran.append("refuse")
            raise ValueError(why)

        @app.step(at_most_once=True)
        async def once(a: int) -> int:
            self.ran.append("once")
            return a

        self.add, self.double, self.flaky, self.refuse, self.once = add, double, flaky, refuse, once


class Shop(Steps):
    """An app: workflows of these steps."""

    def __init__(self) -> None:
        self.app = App("shop")
        super().__init__(self.app)
        app, add = self.app, self.add

        @app.workflow
        async def steps(count: int) -> int:
            total = 0
            for number in range(count):
                total = await add(total, number)
            return total

        @app.workflow
        async def at_once(count: int) -> list[int]:
            return list(await asyncio.gather(*(add(number, 1) for number in range(count)), self.double.aio(count)))

        @app.workflow
        async def compensate(why: str) -> str:
            try:
                await self.refuse(why)
            except ValueError as error:
                return f"{error}: {await add(1, 1)}"
            return ""

        @app.workflow
        async def fail(why: str) -> None:
            await self.refuse(why)

        @app.workflow
        async def parent(count: int) -> int:
            some = await asyncio.gather(*(steps(number) for number in range(1, count + 1)))
            return sum(some) + await steps(1)

        @app.workflow
        async def careful(a: int) -> str:
            try:
                return f"{await self.once(a)}"
            except bokiflow.StepInterrupted:
                return "interrupted"

        @app.workflow
        async def retried(a: int) -> int:
            return await self.flaky(a)

        self.steps, self.at_once, self.compensate, self.fail = steps, at_once, compensate, fail
        self.parent, self.careful, self.retried = parent, careful, retried
        self._that_wait()

    def _that_wait(self) -> None:
        app, add = self.app, self.add

        @app.workflow
        async def sleep(seconds: float) -> int:
            began = bokiflow.now_ms()
            await asyncio.sleep(seconds)
            return bokiflow.now_ms() - began

        @app.workflow
        async def wait(count: int) -> list[bokiflow.Json]:
            found: list[bokiflow.Json] = []
            for _ in range(count):
                found.append(await bokiflow.recv("go"))
                bokiflow.emit("got", found[-1])
                await add(len(found), 0)
            return found

        @app.workflow
        async def greet(other: str) -> str:
            bokiflow.send(other, "go", bokiflow.workflow_id())
            return f"{await add(1, 2)} {bokiflow.unique() != bokiflow.unique()} {0 <= bokiflow.random() < 1}"

        @app.workflow
        async def patient(seconds: float) -> str:
            try:
                async with asyncio.timeout(seconds):
                    await bokiflow.recv("never")
            except TimeoutError:
                return f"late {await add(1, 1)}"
            return "never"

        @app.workflow
        async def again(left: int, total: int) -> int:
            total = await add(total, left)
            if left:
                bokiflow.restart(left - 1, total)
            return total

        self.sleep, self.wait, self.greet, self.patient, self.again = sleep, wait, greet, patient, again
