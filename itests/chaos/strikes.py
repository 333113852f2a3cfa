"""What strikes a chaos run: kill -9 and SIGSTOP of roles and programs, and a ZooKeeper that is away.

Strikes overlap; of each kind of process so many are left alone that the cluster could serve: what it does while too many are away is the
subject of other suites (`itests/logbooks`). Who was struck comes back: after a pause it is begun again, or resumed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from boki_cli.demo.local_cluster import LocalCluster
from examples.supervisor import Supervisor
from itests.support.zookeeper import ZookeeperServer

MAY_BE_AWAY: Final = {"bookie": 1, "sequencer": 1, "engine": 1, "controller": 1}
"""Of the roles of a kind at the same time; of programs all but one of a kind."""
EVERY_S: Final = (0.4, 1.6)
DOWN_S: Final = (0.1, 3.0)
STOPPED_S: Final = (0.5, 3.0, 6.0, 20.0, 120.0)
ZOOKEEPER_AWAY_S: Final = (0.5, 3.0, 6.0)
SHARE_KILLED: Final = 0.6
SHARE_ZOOKEEPER: Final = 0.04


class Strikes:
    """See the module. `count`: by what happened to which kind."""

    def __init__(
        self,
        cluster: LocalCluster,
        programs: Supervisor,
        zookeeper: ZookeeperServer | None,
        *,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self.count: Final[Counter[str]] = Counter()
        self._cluster = cluster
        self._programs = programs
        self._zookeeper = zookeeper
        self._chance = random.Random(seed)
        self._say = say
        self._away: dict[str, asyncio.Task[None]] = {}
        self._over = asyncio.Event()

    async def run(self, seconds: float) -> None:
        """Strike for so long; then everything is begun again or resumed, and runs."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            while loop.time() < end:
                await self._revive()
                await self._strike()
                await asyncio.sleep(self._chance.uniform(*EVERY_S))
        finally:
            self._over.set()
            await asyncio.gather(*self._away.values())
        await self._revive()

    async def _revive(self) -> None:
        """Begin again what ended by itself: a role whose session expired while it was stopped, say."""
        dead = [role for role in self._cluster.roles if role not in self._away and not self._cluster.running(role)]
        if dead:
            await self._cluster.start(*dead)
        for slot in self._programs.slots:
            if slot not in self._away and not self._programs.running(slot):
                await self._programs.start(slot)

    async def _strike(self) -> None:
        if self._zookeeper is not None and self._chance.random() < SHARE_ZOOKEEPER and "zookeeper" not in self._away:
            self._begin("zookeeper", self._lose_zookeeper(self._zookeeper, self._chance.choice(ZOOKEEPER_AWAY_S)))
            return
        victims = [name for name in (*self._cluster.roles, *self._programs.slots) if self._may_strike(name)]
        if not victims:
            return
        victim = self._chance.choice(victims)
        if self._chance.random() < SHARE_KILLED:
            self._begin(victim, self._kill(victim, self._chance.uniform(*DOWN_S)))
        else:
            self._begin(victim, self._stop(victim, self._chance.choice(STOPPED_S)))

    def _may_strike(self, name: str) -> bool:
        kind = kind_of(name)
        of_kind = [other for other in (*self._cluster.roles, *self._programs.slots) if kind_of(other) == kind]
        away = sum(kind_of(other) == kind for other in self._away)
        return name not in self._away and away < MAY_BE_AWAY.get(kind, max(1, len(of_kind) - 1))

    def _begin(self, name: str, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task = asyncio.get_running_loop().create_task(work)
        self._away[name] = task
        task.add_done_callback(lambda _: self._away.pop(name, None))

    async def _last(self, seconds: float) -> None:
        """Wait, but not beyond the end of the strikes."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass

    async def _kill(self, name: str, down_s: float) -> None:
        self._note(f"kill -9 {name}, down for {down_s:.1f} s", f"{kind_of(name)} killed")
        owner = self._cluster if name in self._cluster.roles else self._programs
        await owner.kill(name)
        await self._last(down_s)
        await owner.start(name)

    async def _stop(self, name: str, seconds: float) -> None:
        self._note(f"SIGSTOP {name} for {seconds:g} s", f"{kind_of(name)} stopped")
        owner = self._cluster if name in self._cluster.roles else self._programs
        if not owner.running(name):
            return
        owner.pause(name)
        await self._last(seconds)
        if owner.running(name):
            owner.resume(name)

    async def _lose_zookeeper(self, zookeeper: ZookeeperServer, seconds: float) -> None:
        self._note(f"ZooKeeper away for {seconds:g} s", "ZooKeeper away")
        zookeeper.pause()
        await self._last(seconds)
        zookeeper.resume()

    def _note(self, text: str, kind: str) -> None:
        self.count[kind] += 1
        self._say(text)


def kind_of(name: str) -> str:
    """`bookie` of `bookie-2`, `work` of `work-1`."""
    return name.rpartition("-")[0] or name
