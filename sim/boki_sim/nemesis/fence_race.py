"""A pattern of faults, aimed at a recovery whose writer lives: who was fenced, and whose answers arrive?

Faults at random times seldom meet the few milliseconds between a fence and the reads that follow it. Of three bookies of the
ledger, in any order,

    near    takes all that the writer sends, is fenced; after that its answers to the recoverer are lost for a while
    far     gets the writer's next entries late; the first question of the recoverer is lost on the way
    other   gets the writer's next entries late, is fenced and answers

What lies on `near` alone may be acknowledged later, when `far` takes it too: unless `far` was fenced by what it was asked.
A log that fences with every question of a recovery has nothing to fear.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from boki_sim.clusters.cluster import Cluster, Node
from boki_sim.world.steps import Met

TIMEOUT_S: Final = 2.0
"""What the race waits for may not happen."""
BOOKIES: Final = 3

Links = list[tuple[str, str]]
Hold = Callable[[Links], Callable[[], None]]
"""Blocks links, and returns what opens them again: at once, or when everything is healed."""


@dataclass(frozen=True, slots=True)
class Race:
    """Who is in it: machines."""

    ledger_id: int
    writer: str
    recoverer: str
    bookies: list[str]


def find_race(cluster: Cluster, path: str, recoverer: str) -> Race | None:
    """The race over the metalog at a path of the metadata; None without a living writer or enough bookies."""
    ledger_id = int(path.removeprefix("/ledgers/").replace("/", "").replace("L", ""))
    seen = cluster.invariants.ledgers.get(ledger_id)
    writer = next((node for node in cluster.nodes.values() if _writes(node, ledger_id)), None)
    if seen is None or writer is None or writer.host == recoverer:
        return None
    hosts = {bookie.bookie_id: host for host, bookie in cluster.bookies().items()}
    members = [hosts[one] for one in seen.metadata.ensembles[-1][1] if one in hosts]
    return Race(ledger_id, writer.host, recoverer, members) if len(members) >= BOOKIES else None


def _writes(node: Node, ledger_id: int) -> bool:
    if not node.running or node.ledgers is None or node.kind != "sequencer":
        return False
    return any(writer.ledger_id == ledger_id for writer in node.ledgers._writers)


async def run_race(cluster: Cluster, race: Race, numbers: random.Random, hold: Hold) -> None:
    """See the module; what it does is over within some seconds."""
    weather = cluster.shape.weather
    pace_s = 2 * (weather.base_s + weather.tail_s) + cluster.shape.flush_s
    near, far, other = numbers.sample(race.bookies, BOOKIES)
    late = {host: hold([(race.writer, host)]) for host in (far, other)}
    unasked = hold([(race.recoverer, far)])
    asked = hold([(race.recoverer, near), (race.recoverer, other)])
    await _happens(cluster, "metalog add", near, race.writer)
    asked()
    await _happens(cluster, "entry answer", race.recoverer, near)
    lost_answers = hold([(near, race.recoverer)])
    await asyncio.sleep(pace_s * numbers.uniform(0, 2))
    cluster.network.reset(race.recoverer, far)
    unasked()
    await _happens(cluster, "ledger closes asked", race.recoverer)
    for host in (far, other):  # before the writer learns from the view that its term is over
        late[host]()
        await asyncio.sleep(pace_s * numbers.uniform(0.5, 3))
    lost_answers()


async def _happens(cluster: Cluster, step: str, actor: str, peer: str = "") -> None:
    """Waits until a machine takes the step, with that other one if there is any, but not for ever."""
    happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look(met: Met) -> None:
        if happened.done():
            return
        if met.actor.host == actor and peer == ("" if met.peer is None else met.peer.host):
            happened.set_result(None)
        else:
            cluster.steps.wait(step, 1, look)

    cluster.steps.wait(step, 1, look)
    await asyncio.wait([happened], timeout=TIMEOUT_S)
    happened.cancel()
