"""A peer of workflows in a process of its own, with the packages of a virtual environment of its own: driven line by line.

    here     {"what": "5 steps", "tasks": 32, "seconds": 3.0}              on its standard input
    there    {"per_s": …, "p50_ms": …, "p99_ms": …, "count": …}            on its standard output, once it has run that closed loop

`{"ready": true, …}` comes first. The process ends with its standard input. Both sides of it are here; the child's uses the standard library
alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import IO, Any, Final

START_TIMEOUT_S: Final = 60.0
WARM_UP_S: Final = 0.3
PEERS: Final = Path(__file__).parent.parent / ".venv" / "peers-flow"
"""Where `make bench-flow` puts their packages: they are no part of the project's own environment."""
ALONE: Final = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")

Once = Callable[[], Awaitable[object]]


class Peer:
    """The parent's side. Attributes: ready: what the child said when it began. pid: of the child."""

    def __init__(self, process: asyncio.subprocess.Process, ready: Mapping[str, Any]) -> None:
        self.ready: Final = ready
        self.pid: Final = process.pid
        self._process: Final = process

    @classmethod
    async def start(cls, module: str, *arguments: str, log: Path, alone: bool = False) -> Peer:
        """Raises RuntimeError: it did not start; its log says why.

        Args:
            alone: with a loopback of its own and no other network: servers that look for newer versions of themselves find none.
        """
        command = [*(ALONE if alone else ()), str(PEERS / "bin" / "python"), "-m", module, *arguments]
        root = str(Path(__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=root,
                env=environment,
            )
        try:
            return cls(process, await asyncio.wait_for(_line(process), START_TIMEOUT_S))
        except (TimeoutError, ValueError) as fault:
            process.kill()
            await process.wait()
            raise RuntimeError(f"{module} did not start: {log.read_text(errors='replace')[-2000:]}") from fault

    async def measure(self, what: str, tasks: int, seconds: float) -> Mapping[str, Any]:
        """Runs one closed loop there."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, "tasks": tasks, "seconds": seconds}).encode() + b"\n")
        await self._process.stdin.drain()
        return await asyncio.wait_for(_line(self._process), seconds + START_TIMEOUT_S)

    async def close(self) -> None:
        """It ends with its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), START_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def _line(process: asyncio.subprocess.Process) -> Mapping[str, Any]:
    assert process.stdout is not None
    while True:
        line = await process.stdout.readline()
        if not line:
            raise ValueError("it ended")
        if line.startswith(b"{"):  # what a package prints by itself is passed
            found: Mapping[str, Any] = json.loads(line)
            return found


# -- the child's side


async def serve(loads: Mapping[str, Once], **ready: object) -> None:
    """Runs what its input names, until that ends."""
    say({"ready": True, **ready})
    while True:
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            return
        asked = json.loads(line)
        say(await _measured(loads[asked["what"]], asked["tasks"], asked["seconds"]))


def say(answer: Mapping[str, object], to: IO[str] | None = None) -> None:
    """One line to the parent."""
    print(json.dumps(answer), file=to or sys.stdout, flush=True)


async def _measured(once: Once, tasks: int, seconds: float) -> dict[str, object]:
    taken: list[float] = []
    await _loop(once, tasks, WARM_UP_S, [])
    began = perf_counter()
    await _loop(once, tasks, seconds, taken)
    elapsed = perf_counter() - began
    return {"per_s": len(taken) / elapsed, "count": len(taken), **_latencies(sorted(taken))}


async def _loop(once: Once, tasks: int, seconds: float, taken: list[float]) -> None:
    end = perf_counter() + seconds

    async def task() -> None:
        while (began := perf_counter()) < end:
            await once()
            taken.append(perf_counter() - began)

    await asyncio.gather(*(task() for _ in range(tasks)))


def _latencies(ordered: Sequence[float]) -> dict[str, float]:
    shares = {f"p{share}_ms": ordered[len(ordered) * share // 100] * 1000 for share in (50, 90, 99)}
    return {**shares, "mean_ms": sum(ordered) * 1000 / len(ordered)}
