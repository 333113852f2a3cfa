"""Processes of a trial: each has a place, and a place that loses its process gets another one."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

END_S: Final = 60.0
"""Processes have so long to end as they were told to."""


class Crew:
    """See the module. A process runs until its standard input closes; what it says on its standard error is in `crew.log`."""

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
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )

    async def again(self, place: str) -> None:
        """Kills a place's process with kill -9, and begins the next one."""
        await self._kill(place)
        await self.start(place, *self._arguments[place])

    async def _kill(self, place: str) -> None:
        running = self._running.pop(place)
        if running.returncode is None:
            running.send_signal(signal.SIGKILL)
        await running.wait()

    async def end(self, places: Sequence[str]) -> list[str]:
        """Ends processes as they were told to; what is wrong with how they ended."""
        faults = []
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
            await self._kill(place)
