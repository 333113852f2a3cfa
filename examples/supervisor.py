"""Processes of a trial: a supervisor that starts, kills, pauses, restarts and ends them, and random kills while a trial runs.

    supervisor = Supervisor(directory / "processes.log")
    await supervisor.start("worker-1", module_command("examples.orders.worker", url))
    await kill_at_random(supervisor.victims(cluster), killed, seconds=20, chance=random.Random(7), say=print)
    await supervisor.end()
    supervisor.faults                               # sentences; [] if every process ended cleanly

A slot is a name that outlives its processes, such as `worker-1`. It keeps its command line; its processes are named `worker-1.1`,
`worker-1.2` and so on. A process runs until its standard input closes (see `examples.process`), and its standard error is
appended to the log file. The roles of the cluster are processes of `LocalCluster`, not of the supervisor.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, TypeAlias

from boki_cli.demo.local_cluster import LocalCluster

CommandLine: TypeAlias = Callable[[str], list[str]]
"""Function that returns the command line of a process, given its name."""

Victims: TypeAlias = Mapping[str, Callable[[], Awaitable[None]]]
"""Name of a slot or role → coroutine function that kills and restarts its process."""

END_S: Final = 60.0
"""Time that processes have to end once their standard input is closed."""
KILL_EVERY_S: Final = 1.0
ROLE_DOWN_S: Final = 0.5
"""Time between the kill of a role and its restart."""
CHECK_EVERY_S: Final = 0.1
ROOT: Final = Path(__file__).parents[1]


def module_command(module: str, url: str, *options: str) -> CommandLine:
    """Return the command line `python -m MODULE URL --name NAME OPTIONS`."""
    return lambda name: [sys.executable, "-m", module, url, "--name", name, *options]


class Supervisor:
    """The processes of a trial, at most one per slot.

    Attributes:
        faults: sentences about processes that ended by themselves, with an error, or not in time.
    """

    def __init__(self, log: Path) -> None:
        """Append the standard error of all processes to `log`."""
        self.faults: Final[list[str]] = []
        self._log = log
        self._commands: dict[str, CommandLine] = {}
        self._starts: Counter[str] = Counter()
        self._running: dict[str, asyncio.subprocess.Process] = {}

    @property
    def slots(self) -> list[str]:
        """All slots that were ever started."""
        return list(self._commands)

    async def start(self, slot: str, command: CommandLine | None = None) -> None:
        """Start the next process of a slot.

        Args:
            slot: name that the processes of the slot share.
            command: command line from now on; by default that of the slot's last process.
        """
        self._commands[slot] = command or self._commands[slot]
        self._starts[slot] += 1
        with self._log.open("ab") as log:
            self._running[slot] = await asyncio.create_subprocess_exec(
                *self._commands[slot](f"{slot}.{self._starts[slot]}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    def running(self, slot: str) -> bool:
        """Return whether the slot has a process; report one that ended by itself as a fault."""
        process = self._running.get(slot)
        if process is not None and process.returncode is not None:
            self.faults.append(f"{slot} ended by itself with {process.returncode}: see {self._log}")
            del self._running[slot]
            return False
        return process is not None

    async def kill(self, slot: str) -> None:
        """Kill the slot's process with SIGKILL and wait for its end."""
        process = self._running.pop(slot, None)
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def restart(self, slot: str, down_s: float = 0.0) -> None:
        """Kill the slot's process and start the next one `down_s` later.

        Without a process nothing happens: `restart_ended` is about to start one.
        """
        if slot not in self._running:
            return
        await self.kill(slot)
        await asyncio.sleep(down_s)
        await self.start(slot)

    async def restart_ended(self, stop: asyncio.Event) -> None:
        """Restart processes that end by themselves, which is no fault, until `stop` is set."""
        while not stop.is_set():
            for slot, process in list(self._running.items()):
                if process.returncode is not None and self._running.get(slot) is process:
                    del self._running[slot]
                    await self.start(slot)
            await asyncio.sleep(CHECK_EVERY_S)

    def pause(self, slot: str) -> None:
        """Stop the slot's process with SIGSTOP; `resume` continues it."""
        self._running[slot].send_signal(signal.SIGSTOP)

    def resume(self, slot: str) -> None:
        """Continue a paused process with SIGCONT."""
        self._running[slot].send_signal(signal.SIGCONT)

    async def end(self, *slots: str) -> None:
        """Close the standard input of processes, by default of all, and wait for their end.

        An exit code other than 0 and an end later than END_S, after which the process is killed, are faults.
        """
        ending = {slot: self._running.pop(slot) for slot in slots or self.slots if self.running(slot)}
        for process in ending.values():
            assert process.stdin is not None
            process.stdin.close()
        for slot, process in ending.items():
            try:
                async with asyncio.timeout(END_S):
                    code = await process.wait()
            except TimeoutError:
                process.kill()
                code = await process.wait()
                self.faults.append(f"{slot} did not end within {END_S:g} s")
            if code:
                self.faults.append(f"{slot} ended with {code}: see {self._log}")

    async def clear(self) -> None:
        """Kill all processes that still run."""
        for slot in list(self._running):
            await self.kill(slot)

    def victims(self, cluster: LocalCluster, down_s: float = 0.0) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return `Victims` with all slots, down for `down_s`, and all roles of the cluster."""
        slots = {slot: partial(self.restart, slot, down_s) for slot in self._commands}
        return {**slots, **{role: partial(_restart_role, cluster, role) for role in cluster.roles}}


async def _restart_role(cluster: LocalCluster, role: str) -> None:
    await cluster.kill(role)
    await asyncio.sleep(ROLE_DOWN_S)
    await cluster.start(role)


async def kill_at_random(
    victims: Victims, killed: Counter[str], *, seconds: float, chance: random.Random, say: Callable[[str], None]
) -> None:
    """Kill and restart one random victim after the other, about one a second.

    Args:
        victims: what may be killed.
        killed: counter of kills by kind, which is the victim's name without its number.
        seconds: duration; the call returns no earlier.
        chance: source of the choices, so that a seed repeats them.
        say: called with a line per kill.
    """
    end = perf_counter() + seconds
    while perf_counter() + KILL_EVERY_S < end:
        await asyncio.sleep(KILL_EVERY_S)
        victim = chance.choice(list(victims))
        say(f"kill -9 {victim}")
        killed[victim.rstrip("0123456789").rstrip("-")] += 1
        await victims[victim]()
    await asyncio.sleep(max(0.0, end - perf_counter()))
