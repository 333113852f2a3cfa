"""Processes that a chaos run starts, kills and stops: user programs and the gateway. (`LocalCluster` has the roles.)

A place keeps its command; each of its lives has a name of its own. A process runs until its standard input closes, and its standard error
is in the run's log.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

Command: TypeAlias = Callable[[str], list[str]]
"""Makes the command line of one life, by its name."""

END_S: Final = 60.0
ROOT: Final = Path(__file__).parents[2]


class Processes:
    """See the module. `faults`: places whose process ended though nobody ended it."""

    def __init__(self, log: Path) -> None:
        self.faults: Final[list[str]] = []
        self._log = log
        self._commands: dict[str, Command] = {}
        self._lives: Counter[str] = Counter()
        self._running: dict[str, asyncio.subprocess.Process] = {}

    @property
    def places(self) -> list[str]:
        """All that were ever started."""
        return list(self._commands)

    async def start(self, place: str, command: Command | None = None) -> None:
        """Begin a place's next life."""
        self._commands[place] = command or self._commands[place]
        self._lives[place] += 1
        with self._log.open("ab") as log:
            self._running[place] = await asyncio.create_subprocess_exec(
                *self._commands[place](f"{place}.{self._lives[place]}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    def running(self, place: str) -> bool:
        """Whether it lives; notes one that ended by itself."""
        process = self._running.get(place)
        if process is not None and process.returncode is not None:
            self.faults.append(f"{place} ended by itself with {process.returncode}: see {self._log}")
            del self._running[place]
            return False
        return process is not None

    async def kill(self, place: str) -> None:
        """SIGKILL; returns when it is gone."""
        process = self._running.pop(place, None)
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def pause(self, place: str) -> None:
        """SIGSTOP."""
        self._running[place].send_signal(signal.SIGSTOP)

    def resume(self, place: str) -> None:
        """SIGCONT."""
        self._running[place].send_signal(signal.SIGCONT)

    async def end(self, *places: str) -> None:
        """Let them end in peace; those that do not are faults."""
        ending = {place: self._running.pop(place) for place in places if self.running(place)}
        for process in ending.values():
            assert process.stdin is not None
            process.stdin.close()
        for place, process in ending.items():
            try:
                async with asyncio.timeout(END_S):
                    code = await process.wait()
            except TimeoutError:
                process.kill()
                code = await process.wait()
                self.faults.append(f"{place} did not end within {END_S:g} s")
            if code:
                self.faults.append(f"{place} ended with {code}: see {self._log}")

    async def clear(self) -> None:
        """Kill whatever still runs."""
        for place in list(self._running):
            await self.kill(place)
