"""Retwis on a cluster of processes while they are killed with kill -9, and what is true in the end.

    found = await trial(directory, seconds=20, seed=7, say=print)
    found.faults                                    # sentences; none

Two engines, three bookies, two sequencers (one stands by), and workers with eight clients each. Every other second somebody is killed: a
worker, which another one replaces, or a role, which begins again on what it stored.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.errors import BokiError
from bokistore import BokiStore, JsonObject, StoreSettings
from examples.retwis.app import TIMELINE, TIMELINE_POSTS, USER_POSTS
from examples.retwis.checks import UNKNOWN, Note, State, check
from examples.retwis.worker import BOOK, WRONG

CLIENTS: Final = 8
EVERY_S: Final = 1.0
DOWN_S: Final = 0.5
END_S: Final = 60.0
"""Workers have so long for their last calls."""
VALUES_AT_ONCE: Final = 500


class Found(NamedTuple):
    """What became of a trial."""

    calls: Counter[tuple[str, str]]
    """By operation and outcome."""
    killed: Counter[str]
    state: State
    faults: list[str]
    seconds: float


class Workers:
    """Worker processes; a place that loses its worker gets another one."""

    def __init__(self, url: str, directory: Path, clients: int) -> None:
        self._url = url
        self._directory = directory
        self._clients = clients
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._lives: Counter[str] = Counter()

    async def start(self, place: str) -> None:
        self._lives[place] += 1
        name = f"{place}.{self._lives[place]}"
        command = ("-m", "examples.retwis.worker", self._url, "--name", name, "--clients", str(self._clients))
        with (self._directory / "workers.log").open("ab") as log:
            self._running[place] = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                *("--notes", str(self._directory / f"{name}.notes")),
                stdin=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )

    async def kill(self, place: str) -> None:
        worker = self._running.pop(place)
        if worker.returncode is None:
            worker.send_signal(signal.SIGKILL)
        await worker.wait()

    async def end(self) -> list[str]:
        """Ends all as they were told to; what is wrong with how they ended."""
        for worker in self._running.values():
            assert worker.stdin is not None
            worker.stdin.close()
        faults = []
        for place, worker in self._running.items():
            try:
                async with asyncio.timeout(END_S):
                    code = await worker.wait()
            except TimeoutError:
                worker.kill()
                code = await worker.wait()
            if code:
                faults.append(f"worker {place} ended with {code}; see {self._directory / 'workers.log'}")
        return faults

    async def clear(self) -> None:
        """Whatever still runs ends."""
        for place in list(self._running):
            await self.kill(place)


async def trial(
    directory: Path,
    *,
    seconds: float = 20.0,
    seed: int = 1,
    workers: int = 2,
    say: Callable[[str], None] = lambda _: None,
) -> Found:
    """Runs one; see the module."""
    began = perf_counter()
    chance = random.Random(seed)
    places = [f"w{number}" for number in range(1, workers + 1)]
    killed: Counter[str] = Counter()
    async with LocalCluster(directory, bookies=3, engines=2, sequencers=2, unix_sockets=True) as cluster:
        crew = Workers(cluster.url, directory, CLIENTS)
        try:
            for place in places:
                await crew.start(place)
            end = perf_counter() + seconds
            while perf_counter() + EVERY_S < end:
                await asyncio.sleep(EVERY_S)
                victim = chance.choice([*places, *cluster.roles])
                say(f"kill -9 {victim}")
                killed[victim.partition("-")[0].rstrip("0123456789")] += 1
                if victim in places:
                    await crew.kill(victim)
                    await crew.start(victim)
                else:
                    await cluster.kill(victim)
                    await asyncio.sleep(DOWN_S)
                    await cluster.start(victim)
            await asyncio.sleep(max(0.0, end - perf_counter()))
            faults = await crew.end()
        finally:
            await crew.clear()
        state = await _state(cluster.url)
    notes, wrong = read_notes(directory)
    faults += [*wrong, *check(notes, state)]
    calls = Counter((note.operation, note.outcome) for note in notes)
    return Found(calls, killed, state, faults, perf_counter() - began)


def read_notes(directory: Path) -> tuple[list[Note], list[str]]:
    """What all workers noted: their calls, and what they found wrong themselves."""
    calls: dict[tuple[str, int], Note] = {}
    wrong = []
    for file in sorted(directory.glob("*.notes")):
        for line in file.read_bytes().splitlines():
            facts: dict[str, Any] = msgspec.json.decode(line)
            key = (facts["client"], facts.get("number", 0))
            if "operation" in facts:
                calls[key] = Note(*key, facts["operation"], facts["about"], UNKNOWN)
            elif facts["outcome"] == WRONG:
                wrong.append(f"{facts['client']}: {facts['said']}")
            else:
                calls[key] = calls[key]._replace(outcome=facts["outcome"], answer=facts["answer"])
    return list(calls.values()), wrong


async def _state(url: str) -> State:
    """The whole network as of now, which is behind all that was acknowledged."""
    async with boki.connect(url, timeout=END_S) as client:
        store = BokiStore(client.book(BOOK), settings=StoreSettings(checkpoints=False))
        while True:
            try:
                return await _read(store)
            except BokiError as error:
                if not error.retryable:
                    raise


async def _read(store: BokiStore) -> State:
    at = await store.log.book.now(consistency="linearizable")
    found: dict[str, dict[str, JsonObject]] = {
        "username": {},
        "userid": {},
        "post": {},
        TIMELINE: {},
        "next_user_id": {},
    }
    names = await store.names(at=at)
    for start in range(0, len(names), VALUES_AT_ONCE):
        some = names[start : start + VALUES_AT_ONCE]
        for name, value in zip(some, await store.values(some, at=at), strict=True):
            kind, _, id = name.partition(":")
            if value is not None:
                found[kind][id] = value
    listed: Any = found[TIMELINE].get("", {}).get("posts", [])
    return State(found["username"], found["userid"], found["post"], listed, TIMELINE_POSTS, USER_POSTS)
