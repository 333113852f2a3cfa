"""Loss of every role under load, on machines of their own with ZooKeeper: kill -9 one by one and in pairs, SIGSTOP for longer
than a session, ZooKeeper away for longer than a session, partitions. Two logs, standbys, two engines, two controllers.

What is lost, doubled, answered wrongly or out of order is found in the history of all calls (`itests/faults/rounds.py`); appends
must go on after each fault, before anything that was killed is started again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from itests.faults.machines import Machines, cluster_on_hosts
from itests.faults.rounds import Strike, last, round_under
from itests.logbooks.administration import administrator
from itests.support.processes import command

pytestmark = [
    pytest.mark.processes,
    pytest.mark.namespaces,
    pytest.mark.alone,
    pytest.mark.zookeeper,
    pytest.mark.timeout(600),
]

COUNTS: Final = {"bookie": 4, "sequencer": 4, "engine": 2, "controller": 2}
KINDS: Final = tuple(COUNTS)
ROLES: Final = tuple(f"{kind}-{number}" for kind, count in COUNTS.items() for number in range(1, count + 1))
SESSION_S: Final = 4.0
LONGER_S: Final = 1.5 * SESSION_S


class Faults(Machines):
    """What strikes a cluster. Each fault lasts, heals, and leaves every role running."""

    async def kill(self, roles: Sequence[str], seconds: float) -> str:
        await self.cluster.kill(*roles)
        await last(seconds, self.revive)
        return f"{' and '.join(roles)} killed"

    async def pause(self, roles: Sequence[str], seconds: float) -> str:
        self.cluster.pause(*roles)

        async def go_on() -> None:
            self.cluster.resume(*roles)

        await last(seconds, go_on)
        await self.revive()
        return f"{' and '.join(roles)} stopped for {seconds} s"

    async def part(self, roles: Sequence[str], seconds: float) -> str:
        for role in roles:
            await self.hosts.cut(role)
        await last(seconds, self.hosts.heal)
        await self.revive()
        return f"{' and '.join(roles)} cut from all for {seconds} s"

    async def lose_zookeeper(self, seconds: float) -> str:
        self.zookeeper.pause()

        async def go_on() -> None:
            self.zookeeper.resume()

        await last(seconds, go_on)
        await self.revive()
        return f"ZooKeeper away for {seconds} s"

    async def heal(self) -> None:
        await self.hosts.heal()
        await self.revive()

    async def round(self, strikes: Sequence[Strike], *, seed: int, seconds: float) -> None:
        url = self.cluster.url
        await round_under(url, strikes, seed=seed, seconds=seconds, on_heal=self.heal, describe=self.describe)

    async def describe(self) -> str:
        """What `boki status` says."""
        _, said, _ = await command(
            "status", "--json", "--metadata", self.cluster.metadata_uri, "--url", self.cluster.url
        )
        return said

    def any(self) -> list[Strike]:
        """Faults drawn by chance, of one role or two of different kinds."""

        def roles(chance: random.Random) -> list[str]:
            kinds = chance.sample(KINDS, chance.choice((1, 1, 2)))
            return [chance.choice([role for role in ROLES if role.startswith(kind)]) for kind in kinds]

        return [
            lambda chance: self.kill(roles(chance), chance.choice((0.5, 3.0))),
            lambda chance: self.pause(roles(chance), chance.choice((1.0, LONGER_S))),
            lambda chance: self.part(roles(chance), chance.choice((1.0, LONGER_S))),
        ]

    def all(self) -> list[Callable[[], Awaitable[str]]]:
        """Each role of each kind, each pair of kinds, each way: the whole list."""
        one_each = [f"{kind}-1" for kind in KINDS]
        pairs = [list(pair) for pair in itertools.combinations(one_each, 2)]
        return [
            *(partial(self.kill, [role], 3.0) for role in one_each),
            *(partial(self.kill, pair, 3.0) for pair in pairs),
            *(partial(self.pause, [role], LONGER_S) for role in one_each),
            *(partial(self.part, [role], LONGER_S) for role in one_each),
            partial(self.lose_zookeeper, LONGER_S),
        ]


@pytest.fixture
async def faults(tmp_path: Path) -> AsyncIterator[Faults]:
    counts = {f"{kind}s": count for kind, count in COUNTS.items()}
    async with (
        cluster_on_hosts(tmp_path, ROLES, **counts) as made,
        administrator(made[0].metadata_uri, token_file=tmp_path / "token") as admin,
    ):
        await admin.changes.add(1)
        await admin.changes.spread({0: 1, 1: 1})
        yield Faults(*made)


async def test_random_losses_break_no_promise(faults: Faults) -> None:
    await faults.round(faults.any(), seed=1, seconds=20)


async def test_zookeeper_away_for_longer_than_a_session_breaks_no_promise(faults: Faults) -> None:
    strikes: list[Strike] = [lambda _: faults.lose_zookeeper(LONGER_S)]
    await faults.round(strikes, seed=2, seconds=1)


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_every_loss_in_turn_breaks_no_promise(faults: Faults) -> None:
    left = faults.all()

    async def next_one(_: random.Random) -> str:
        if left:
            return await left.pop(0)()
        await last(1.0, faults.heal)
        return "nothing"

    await faults.round([next_one], seed=100, seconds=len(left) * SESSION_S * 3)
    assert not left, f"no time for {len(left)} of the faults"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3, 8))
async def test_more_random_losses_break_no_promise(faults: Faults, seed: int) -> None:
    await faults.round(faults.any(), seed=seed, seconds=120)
