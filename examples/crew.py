"""Processes of a trial: each has a place, and a place that loses its process gets another one. And who kills them."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, TypeAlias

from boki_cli.demo.local_cluster import LocalCluster

Victims: TypeAlias = Mapping[str, Callable[[], Awaitable[None]]]
"""Name → what kills it, and begins it again."""

EVERY_S: Final = 1.0
DOWN_S: Final = 0.5
SUPERVISE_EVERY_S: Final = 0.1

END_S: Final = 60.0
"""Processes have so long to end after SIGTERM."""


class Crew:
    """See the module. A process runs until its standard input closes; its standard error is in `crew.log`."""

    def __init__(self, module: str, url: str, directory: Path) -> None:
        """`module`: is run with the URL, `--name`, and what `start` was given."""
        self._module = module
        self._url = url
        self._directory = directory
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._arguments: dict[str, Sequence[str]] = {}
        self._lives: Counter[str] = Counter()

    async def start(self, place: str, *arguments: str) -> None:
        """Begins a place's process."""
        self._arguments[place] = arguments
        self._lives[place] += 1
        name = f"{place}.{self._lives[place]}"
        with (self._directory / "crew.log").open("ab") as log:
            self._running[place] = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", self._module, self._url, "--name", name, *arguments),
                stdin=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parents[1],
                start_new_session=True,
            )

    async def again(self, place: str, down_s: float = 0.0) -> None:
        """Kills a place's process with kill -9, and begins the next one; nothing if `supervise` begins it just now."""
        if place not in self._running:
            return
        await self.kill(place)
        await asyncio.sleep(down_s)
        await self.start(place, *self._arguments[place])

    def victims(self, cluster: LocalCluster, down_s: float = 0.0) -> dict[str, Callable[[], Awaitable[None]]]:
        """All places that were started, and the roles of a cluster."""
        places = {place: partial(self.again, place, down_s) for place in self._arguments}
        return {**places, **{role: partial(_again, cluster, role) for role in cluster.roles}}

    def has_ended(self, place: str) -> bool:
        """Whether a place's process ended by itself."""
        return self._running[place].returncode is not None

    async def supervise(self, stop: asyncio.Event) -> None:
        """Begin the next process of each place whose process ended by itself, until `stop`."""
        while not stop.is_set():
            for place, process in list(self._running.items()):
                if process.returncode is not None and self._running.get(place) is process:
                    del self._running[place]
                    await self.start(place, *self._arguments[place])
            await asyncio.sleep(SUPERVISE_EVERY_S)

    async def kill(self, place: str) -> None:
        running = self._running.pop(place)
        if running.returncode is None:
            running.send_signal(signal.SIGKILL)
        await running.wait()

    async def end(self, places: Sequence[str] = ()) -> list[str]:
        """Stops processes (all, if none is named); returns what is wrong with how they ended."""
        places, faults = places or list(self._running), []
        for place in places:
            process = self._running[place]
            assert process.stdin is not None
            process.stdin.close()
        for place in places:
            process = self._running[place]
            try:
                async with asyncio.timeout(END_S):
                    code = await process.wait()
            except TimeoutError:
                process.kill()
                code = await process.wait()
            if code:
                faults.append(f"{place} ended with {code}; see {self._directory / 'crew.log'}")
        return faults

    async def clear(self) -> None:
        """Whatever still runs ends."""
        for place in list(self._running):
            await self.kill(place)


async def _again(cluster: LocalCluster, role: str) -> None:
    await cluster.kill(role)
    await asyncio.sleep(DOWN_S)
    await cluster.start(role)


async def kill_some(
    victims: Victims, killed: Counter[str], *, seconds: float, chance: random.Random, say: Callable[[str], None]
) -> None:
    """For so long, kills one after the other. `killed` counts them by kind."""
    end = perf_counter() + seconds
    while perf_counter() + EVERY_S < end:
        await asyncio.sleep(EVERY_S)
        victim = chance.choice(list(victims))
        say(f"kill -9 {victim}")
        killed[victim.rstrip("0123456789").rstrip("-")] += 1
        await victims[victim]()
    await asyncio.sleep(max(0.0, end - perf_counter()))
