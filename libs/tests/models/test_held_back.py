"""The back-off of workflows that take their workers down, as a simulation: workers of a group that die by what they run, or are killed or
drained, and begin again under their names, at once or after a lease.

Every healthy workflow ends, killers take down fewer and fewer workers, and nothing is held back that recorded something since its
claim, or whose worker was drained. Without the back-off the killers go on as before, and what takes longer than a worker lives never ends.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import pytest

from bokiflow.worker import held_back

LEASE_S: Final = 15.0
HOUR_S: Final = 3_600.0
PARTITIONS: Final = 2

Kind = Literal["killer", "healthy", "sleeper", "looping"]


@dataclass
class Claim:
    """The newest claim of a workflow. `worker`: an incarnation. progressed, under_way: the facts, also where no worker knows them."""

    seqnum: int
    worker: int
    at_s: float
    vain: int = 0
    pause_ms: int = 0
    progressed: bool = False
    under_way: bool = True


@dataclass
class Flow:
    """A workflow. killer: ends its process when it has run for `lasts_s`. healthy: has one step of that length. sleeper: waits without end.
    looping: records something each `lasts_s`, without end."""

    id: str
    kind: Kind
    partition: int
    lasts_s: float
    claim: Claim | None = None
    done_s: float = 0.0


@dataclass
class Kills:
    """From outside: the mean time between two kills of workers, and between two drains, 0: none; until some time."""

    kill_s: float = 0.0
    drain_s: float = 0.0
    until_s: float = HOUR_S


@dataclass
class World:
    """Workers 0, 1, …, each with its incarnations, which are numbered through."""

    flows: list[Flow]
    seed: int
    workers: int = 3
    kills: Kills = field(default_factory=Kills)
    backs_off: bool = True
    now_s: float = 0.0
    alive: dict[int, int] = field(default_factory=dict)
    names: dict[int, int] = field(default_factory=dict)
    drained: set[int] = field(default_factory=set)
    holders: dict[int, int] = field(default_factory=dict)
    deaths: list[float] = field(default_factory=list)
    held: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        for name in range(self.workers):
            self.at(self.random.uniform(0, 1), partial(self.boot, name))
        self.next_kill(self.kills.kill_s, self.die)
        self.next_kill(self.kills.drain_s, self.drain)

    def number(self) -> int:
        self.count += 1
        return self.count

    def at(self, s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.events, (s, self.number(), call))

    def run(self, until_s: float) -> None:
        while self.events and self.events[0][0] < until_s:
            self.now_s, _, call = heapq.heappop(self.events)
            call()

    def next_kill(self, mean_s: float, kill: Callable[[int], None]) -> None:
        def now() -> None:
            if self.alive and self.now_s < self.kills.until_s:
                kill(self.random.choice(sorted(self.alive)))
            self.next_kill(mean_s, kill)

        if mean_s:
            self.at(self.now_s + self.random.expovariate(1 / mean_s), now)

    def boot(self, name: int) -> None:
        worker = self.number()
        self.alive[worker], self.names[worker] = name, name
        own = [one for one, holder in self.holders.items() if self.names[holder] == name and holder not in self.alive]
        self.take(worker, own or [one for one in range(PARTITIONS) if one not in self.holders])

    def die(self, worker: int) -> None:
        if worker in self.alive:
            name = self.alive.pop(worker)
            self.deaths.append(self.now_s)
            self.at(self.now_s + self.random.choice([1.0, 3.0, LEASE_S + 9]), lambda: self.boot(name))
            self.at(self.now_s + LEASE_S, lambda: self.lapse(worker))

    def drain(self, worker: int) -> None:
        name = self.alive.pop(worker)
        self.drained.add(worker)
        self.lapse(worker)
        self.at(self.now_s + 2, lambda: self.boot(name))

    def lapse(self, worker: int) -> None:
        """Let other workers claim the workflows of a worker."""
        left = [one for one, holder in self.holders.items() if holder == worker]
        if left and not self.alive:
            self.at(self.now_s + 1, lambda: self.lapse(worker))
        for one in left if self.alive else ():
            self.take(self.random.choice(sorted(self.alive)), [one])

    def take(self, worker: int, partitions: list[int]) -> None:
        self.holders.update(dict.fromkeys(partitions, worker))
        for flow in self.flows:
            if flow.partition in partitions and not flow.done_s:
                self.claim(worker, flow)

    def claim(self, worker: int, flow: Flow) -> None:
        """Claim the workflows, by the rules of `Takeover`."""
        if worker not in self.alive or self.holders[flow.partition] != worker or flow.done_s:
            return
        last, vain = flow.claim, 0
        if last is not None:
            lost = last.worker not in self.drained
            vain = held_back.begun_in_vain(last.vain, lost=lost, progressed=last.progressed)
            now_ms = round(1_000 * self.now_s)
            left_ms = held_back.left_ms(vain, last.pause_ms, round(1_000 * last.at_s), now_ms) if lost else 0
            if left_ms and self.backs_off:
                assert not last.progressed and last.worker not in self.drained
                assert flow.kind != "sleeper" or last.vain <= held_back.AT_ONCE
                self.held += 1
                self.at(self.now_s + (left_ms + 1) / 1_000, lambda: self.claim(worker, flow))
                return
        before = 0 if last is None else last.seqnum
        pause_ms = held_back.pause_ms(flow.id, before, vain, LEASE_S)
        flow.claim = claim = Claim(self.number(), worker, self.now_s, vain, pause_ms)
        if flow.kind == "sleeper":
            claim.progressed = vain > held_back.AT_ONCE  # it records that nothing is under way
        else:
            self.at(self.now_s + flow.lasts_s, lambda: self.ends(flow, claim))

    def ends(self, flow: Flow, claim: Claim) -> None:
        if claim is not flow.claim or claim.worker not in self.alive:
            return
        if flow.kind == "killer":
            self.die(claim.worker)
        elif flow.kind == "healthy":
            flow.done_s = self.now_s
        else:
            claim.progressed = True
            self.at(self.now_s + flow.lasts_s, lambda: self.ends(flow, claim))

    def died_in(self, begin_s: float, end_s: float) -> int:
        return sum(begin_s <= at_s < end_s for at_s in self.deaths)


def shop(seed: int, killers: int = 2) -> list[Flow]:
    """Killers, a long healthy step and short ones, sleepers, and what records something again and again."""
    chance = random.Random(seed)
    kinds: list[tuple[Kind, float]] = [("healthy", 60.0)]
    for _ in range(10):
        kinds.append(("healthy", chance.uniform(0.1, 5)))
    for _ in range(5):
        kinds.append(("sleeper", 0.0))
    for _ in range(3):
        kinds.append(("looping", chance.uniform(1, 3)))
    for _ in range(killers):
        kinds.append(("killer", chance.choice([0.05, 1.0, 10.0])))
    return [
        Flow(f"{kind} {at}", kind, chance.randrange(PARTITIONS), lasts_s) for at, (kind, lasts_s) in enumerate(kinds)
    ]


REGIMES: Final = {
    "only killers": Kills(),
    "kills": Kills(kill_s=45.0),
    "kills in quick succession": Kills(kill_s=5.0, until_s=600.0),
    "deploys": Kills(drain_s=60.0),
    "all": Kills(kill_s=120.0, drain_s=120.0),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("regime", REGIMES)
def test_healthy_ones_end_beside_killers_whoever_else_is_killed(regime: str, workers: int) -> None:
    for seed in range(8):
        world = World(shop(seed), seed, workers, REGIMES[regime])
        world.run(4 * HOUR_S)
        open_ones = [flow.id for flow in world.flows if flow.kind == "healthy" and not flow.done_s]
        assert not open_ones and world.held, f"seed {seed}"
        last = world.died_in(3 * HOUR_S, 4 * HOUR_S)
        assert last <= 2 * HOUR_S / (LEASE_S + held_back.MOST_S / 2) + 2, f"seed {seed}: {last} deaths in the last hour"


def test_without_the_back_off_killers_go_on_and_a_long_step_never_ends() -> None:
    for seed in range(5):
        world = World(shop(seed), seed, 1, backs_off=False)
        world.run(2 * HOUR_S)
        assert world.died_in(HOUR_S, 2 * HOUR_S) > 100 and not world.flows[0].done_s, f"seed {seed}"


@pytest.mark.parametrize("every_s", [5.0, 20.0, 60.0])
def test_kills_from_outside_alone_do_not_stop_what_could_end(every_s: float) -> None:
    """A step of 10 s, killed again and again: its pauses count from its claims, so they do not add up with its worker's deaths."""
    for seed in range(6):
        flows = [Flow(f"step {at}", "healthy", at % PARTITIONS, 10.0) for at in range(20)]
        world = World(flows, seed, 1, Kills(every_s, until_s=24 * HOUR_S))
        world.run(24 * HOUR_S)
        assert all(flow.done_s for flow in flows), f"seed {seed}"


def test_a_single_death_delays_nothing() -> None:
    world = World([Flow("x", "healthy", 0, 60.0)], 1, 1)
    world.at(30.0, lambda: world.die(next(iter(world.alive))))
    world.run(HOUR_S)
    assert not world.held and world.flows[0].done_s < 30 + LEASE_S + 9 + 60 + 1
