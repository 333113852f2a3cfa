"""The load on an application: requests of many clients, in a closed or an open loop.

In a closed loop each client sends its next request when the last one was answered. In an open loop requests are due at a
fixed rate, and the time of a request counts from when it was due, so that a stalled service cannot hide its delay.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter
from typing import Final

from examples.apps.application import Answer, Application, Mix, Request, operation_of
from examples.apps.service_client import NoAnswer, ServiceClient

IN_FLIGHT: Final = 2_000
"""Bound on the unanswered requests of an open loop; requests beyond it are skipped and counted as late."""


class LoadGenerator:
    """Random requests of an application in one mix.

    Attributes:
        answers: definite results so far.
        faults: sentences about requests without a definite result.
        late: number of requests that the open loop skipped because too many were unanswered.
    """

    def __init__(self, application: Application, calls: ServiceClient, mix: Mix, *, name: str, seed: int = 1) -> None:
        """Create a load whose requests have ids that begin with `name` and are chosen by `seed`."""
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
        """Run clients until `stop` is set; each waits for its answer, pauses for `pause_s`, and sends its next request."""

        async def client() -> None:
            while not stop.is_set():
                await self._ask()
                if pause_s:
                    await asyncio.sleep(pause_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())

    async def open(self, rate: float, seconds: float) -> None:
        """Send `rate` requests a second, evenly spaced, for `seconds`; then wait for the last answers."""
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
