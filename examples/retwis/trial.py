"""A trial of Retwis: a cluster and workers whose processes are killed with kill -9, and the check of the network at the end.

    result = await trial(directory, seconds=20, seed=7, say=print)
    result.faults                                   # sentences; [] if every promise held

The cluster has two engines, three bookies and two sequencers, one of them on standby; each worker has eight clients. Every
second a worker or a role is killed. A new worker takes its place; a role restarts with the data that it had stored.
"""

from __future__ import annotations

import random
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
from examples.retwis.checks import UNKNOWN, NetworkState, NotedCall, check
from examples.retwis.worker import BOOK, WRONG
from examples.supervisor import Supervisor, kill_at_random, module_command

CLIENTS: Final = 8
END_S: Final = 60.0
VALUES_AT_ONCE: Final = 500


class TrialResult(NamedTuple):
    """Result of a trial.

    Attributes:
        calls: number of calls by operation and outcome.
        killed: kills by kind of process.
        state: the network at the end.
        faults: sentences; [] if every promise held.
        seconds: duration.
    """

    calls: Counter[tuple[str, str]]
    killed: Counter[str]
    state: NetworkState
    faults: list[str]
    seconds: float


async def trial(
    directory: Path,
    *,
    seconds: float = 20.0,
    seed: int = 1,
    workers: int = 2,
    say: Callable[[str], None] = lambda _: None,
) -> TrialResult:
    """Run a trial; see the module."""
    began = perf_counter()
    killed: Counter[str] = Counter()
    async with LocalCluster(directory, bookies=3, engines=2, sequencers=2, unix_sockets=True) as cluster:
        supervisor = Supervisor(directory / "processes.log")
        options = ("--clients", str(CLIENTS), "--notes", str(directory))
        try:
            for number in range(1, workers + 1):
                command = module_command("examples.retwis.worker", cluster.url, *options)
                await supervisor.start(f"w{number}", command)
            victims = supervisor.victims(cluster)
            await kill_at_random(victims, killed, seconds=seconds, chance=random.Random(seed), say=say)
            await supervisor.end()
        finally:
            await supervisor.clear()
        state = await _state(cluster.url)
    notes, wrong = read_notes(directory)
    faults = [*supervisor.faults, *wrong, *check(notes, state)]
    calls = Counter((note.operation, note.outcome) for note in notes)
    return TrialResult(calls, killed, state, faults, perf_counter() - began)


def read_notes(directory: Path) -> tuple[list[NotedCall], list[str]]:
    """Return the calls that all workers noted, and the faults that they found themselves."""
    calls: dict[tuple[str, int], NotedCall] = {}
    wrong = []
    for file in sorted(directory.glob("*.notes")):
        for line in file.read_bytes().splitlines():
            facts: dict[str, Any] = msgspec.json.decode(line)
            key = (facts["client"], facts.get("number", 0))
            if "operation" in facts:
                calls[key] = NotedCall(*key, facts["operation"], facts["about"], UNKNOWN)
            elif facts["outcome"] == WRONG:
                wrong.append(f"{facts['client']}: {facts['fault']}")
            else:
                calls[key] = calls[key]._replace(outcome=facts["outcome"], answer=facts["answer"])
    return list(calls.values()), wrong


async def _state(url: str) -> NetworkState:
    """Return the network in a snapshot that has every acknowledged change."""
    async with boki.connect(url, timeout=END_S) as client:
        store = BokiStore(client.book(BOOK), settings=StoreSettings(checkpoints=False))
        while True:
            try:
                return await _read(store)
            except BokiError as error:
                if not error.retryable:
                    raise


async def _read(store: BokiStore) -> NetworkState:
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
    return NetworkState(found["username"], found["userid"], found["post"], listed, TIMELINE_POSTS, USER_POSTS)
