"""Stores on real processes: three programs that run transactions, carry and checkpoint are killed with -9 and begin anew, and so are
engines, bookies and the sequencer below them. What committed is checked for cycles, at both levels; nothing that was acknowledged is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from bokilib.records.isolation import Isolation
from bokistore import BokiStore
from bokistore.testing.cycles import Transacted, anomalies
from itests.store.worker import BOOK

pytestmark = [pytest.mark.processes]

ROOT = Path(__file__).parents[2]
WORKERS = 3
LEAST_COMMITTED = 100


class Programs:
    """The processes, each with a file of what it did; a file outlives its process."""

    def __init__(self, url: str, directory: Path, isolation: Isolation) -> None:
        self._url = url
        self._directory = directory
        self._isolation = isolation
        self._started = 0
        self.running: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        self._started += 1
        path = self._directory / f"worker{self._started}"
        command = [sys.executable, "-m", "itests.store.worker", self._url, str(path), str(self._started * 1_000_000)]
        errors = path.with_suffix(".err").open("wb")
        with errors:
            self.running.append(
                await asyncio.create_subprocess_exec(*command, self._isolation, stderr=errors, cwd=ROOT)
            )

    async def kill(self, which: int) -> None:
        process = self.running.pop(which)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    def faults(self) -> list[str]:
        """Output of processes that ended by themselves."""
        texts = [path.read_text() for path in sorted(self._directory.glob("worker*.err"))]
        return [text for text in texts if "Traceback" in text]

    def history(self) -> tuple[dict[int, Transacted], dict[int, str]]:
        """The last run of each transaction, and how those ended that did."""
        runs: dict[int, Transacted] = {}
        ends: dict[int, str] = {}
        for path in sorted(self._directory.glob("worker?*")):
            if path.suffix == ".err":
                continue
            for line in path.read_text().splitlines():
                words = line.split()
                if words[0] == "run" and len(words) == 4:
                    number = int(words[1])
                    runs[number] = Transacted(number, json.loads(words[2]), json.loads(words[3]))
                elif words[0] == "end" and len(words) == 3:
                    ends[int(words[1])] = words[2]
        return runs, ends


async def strike(chances: random.Random, cluster: LocalCluster, programs: Programs) -> None:
    """Kills a program, and now and then something below."""
    await programs.kill(chances.randrange(len(programs.running)))
    role = chances.choice([None, "engine-1", "engine-2", "bookie-1", "bookie-2", "bookie-3", "sequencer-1"])
    if role is not None:
        await cluster.kill(role)
        await cluster.start(role)
    await programs.start()


async def trial(directory: Path, isolation: Isolation, seed: int, seconds: float) -> int:
    """Runs it; returns how many transactions committed."""
    chances = random.Random(seed)
    loop = asyncio.get_running_loop()
    async with LocalCluster(directory / "cluster", bookies=3, engines=2) as cluster:
        programs = Programs(cluster.url, directory, isolation)
        for _ in range(WORKERS):
            await programs.start()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.wait(
                [asyncio.create_task(one.wait()) for one in programs.running], timeout=chances.uniform(0.5, 2.5)
            )
            await strike(chances, cluster, programs)
        while programs.running:
            await programs.kill(0)
        runs, ends = programs.history()
        keys = sorted({key for run in runs.values() for key in (*run.read, *run.appended)})
        async with boki.connect(cluster.url) as client:
            values = await BokiStore(client.book(BOOK)).values(keys, consistency="linearizable")
    last: dict[str, Any] = {key: value["l"] for key, value in zip(keys, values, strict=True) if value is not None}
    there = {number for numbers in last.values() for number in numbers}
    counting = [run for number, run in runs.items() if ends.get(number) == "committed" or number in there]
    wrong = [number for number in there if ends.get(number) == "refused"]
    assert not wrong, f"refused, and there: {wrong}"
    assert anomalies(counting, last, serializable=isolation == "serializable") == []
    assert programs.faults() == []
    return sum(end == "committed" for end in ends.values())


@pytest.mark.timeout(120)
async def test_programs_and_what_is_below_them_are_killed(tmp_path: Path) -> None:
    assert await trial(tmp_path, "serializable", seed=1, seconds=8) >= LEAST_COMMITTED


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
@pytest.mark.parametrize("seed", [2, 3])
async def test_for_a_minute(tmp_path: Path, isolation: Isolation, seed: int) -> None:
    assert await trial(tmp_path, isolation, seed, seconds=60) >= LEAST_COMMITTED
