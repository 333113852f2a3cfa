"""Requests of many clients: each asks when it was answered (closed loop), or whenever one is due (open loop).

In an open loop the time of a request counts from when it was due, so that a service that stops does not stop its own clock.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter
from typing import Final

from examples.apps.application import Answer, Application, Mix, Request, operation_of
from examples.apps.service_client import NoAnswer, ServiceClient

IN_FLIGHT: Final = 2_000
"""Requests of an open loop without an answer; more are not made, and the load reports it."""


class LoadGenerator:
    """See the module.

    Attributes:
        answers: so far. faults: of requests that were not answered. late: requests that were not made, since too many had no answer.
    """

    def __init__(self, application: Application, calls: ServiceClient, mix: Mix, *, name: str, seed: int = 1) -> None:
        """`name`: of this run; ids of requests begin with it."""
        self.answers: list[Answer] = []
        self.faults: list[str] = []
        self.late = 0
        self._application: Final = application
        self._calls: Final = calls
        self._mix: Final = mix
        self._name: Final = name
        self._chance: Final = random.Random(f"{name} {seed}")
        self._number = 0

    def _next(self) -> Request:
        self._number += 1
        operation = operation_of(self._mix, self._chance)
        return self._application.request(self._chance, operation, f"{self._name}-{self._number}")

    async def _ask(self, since: float | None = None) -> None:
        try:
            self.answers.append(await self._calls.ask(self._next(), since=since))
        except NoAnswer as fault:
            self.faults.append(str(fault))

    async def closed(self, clients: int, stop: asyncio.Event, pause_s: float = 0.0) -> None:
        """So many clients, until somebody sets `stop`; each waits for its last answer, and thinks for so long before it asks again."""

        async def client() -> None:
            while not stop.is_set():
                await self._ask()
                if pause_s:
                    await asyncio.sleep(pause_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())

    async def open(self, rate: float, seconds: float) -> None:
        """So many requests a second, evenly; waits for the last answers."""
        began = perf_counter()
        flying: set[asyncio.Task[None]] = set()
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - perf_counter()))
            if len(flying) >= IN_FLIGHT:
                self.late += 1
                continue
            task = asyncio.create_task(self._ask(due))
            flying.add(task)
            task.add_done_callback(flying.discard)
        await asyncio.gather(*flying)
