"""A run of ledgers (`ledger_world`) in which each recovery meets one pattern of faults: who was fenced, and who is heard?

Faults at random times seldom meet the few milliseconds between a fence and the reads that follow it. Here they are aimed, and
only their times within that are the seed's. Of the three bookies of a ledger, in any order,

    near    takes all that the writer sends, is fenced, and is not heard by the recoverer after that, for a while
    far     gets the writer's last entries late; the first question of the recoverer is lost on the way
    other   gets the writer's last entries late, is fenced and heard

What lies on `near` alone may be acknowledged later, when `far` takes it too: unless `far` was fenced by what it was asked.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from boki_common.errors import BokiError, Overloaded
from boki_ledger.write.writer import LedgerWriter
from boki_sim.clusters.cluster import Node
from boki_sim.world.randomness import stream
from itests.museum.ledger_world import LedgerFacts, LedgerRun, payload

RACES_OF_A_RUN: Final = 12
FENCED_STEPS: Final = 1_000
STEP_S: Final = 0.000_5


class FenceRace(LedgerRun):
    """See the module. Its profile has no faults of its own."""

    async def scenario(self) -> None:
        cluster = self.cluster
        cluster.writing = False  # its writers and recoverers only lend their clients
        await cluster.start()
        while len(cluster.bookies()) < cluster.shape.bookies or any(
            cluster.nodes[name].ledgers is None for name in ("engine-1", "sequencer-1")
        ):
            await asyncio.sleep(0.1)
        numbers = stream(self.seed, "fence races")
        for _ in range(RACES_OF_A_RUN):
            await self._race(numbers)
        await self.verify()

    async def _race(self, numbers: random.Random) -> None:
        cluster, network = self.cluster, self.cluster.network
        writing, recovering = cluster.nodes["engine-1"], cluster.nodes["sequencer-1"]
        shape = cluster.shape
        pace_s = 2 * (shape.weather.base_s + shape.weather.tail_s) + shape.flush_s
        assert writing.process is not None and recovering.process is not None
        writer = await writing.process.start(self._begin(writing, numbers.randrange(1, 4)))
        members = cluster.invariants.ledgers[writer.ledger_id].metadata.ensembles[-1][1]
        hosts = {one.bookie_id: host for host, one in cluster.bookies().items()}
        near, far, other = numbers.sample([hosts[one] for one in members], 3)
        late = {far: [(writing.host, far)], other: [(writing.host, other)]}
        for links in late.values():
            network.block(links)
        await writing.process.start(self._submit(writer, numbers.randrange(1, 4)))
        await asyncio.sleep(pace_s * numbers.uniform(1, 4))
        network.block([(recovering.host, far)])
        assert recovering.ledgers is not None
        recovery = recovering.process.start(
            self._recover_once(recovering, writer.ledger_id), name=f"recovers {writer.ledger_id}"
        )
        await self._fenced(writer.ledger_id, near, other)
        await asyncio.sleep(pace_s * numbers.uniform(0, 1.5))
        network.block([(near, recovering.host)])
        await asyncio.sleep(pace_s * numbers.uniform(0, 1))
        network.reset(recovering.host, far)
        network.unblock([(recovering.host, far)])
        await asyncio.sleep(numbers.uniform(0.1, 0.6))
        for host in numbers.sample((far, other), 2):
            network.unblock(late[host])
            await asyncio.sleep(pace_s * numbers.uniform(0, 3))
        network.unblock([(near, recovering.host)])
        await asyncio.wait([recovery], timeout=30)
        cluster.look()
        writer.abandon()

    async def _begin(self, node: Node, entries: int) -> LedgerWriter:
        """A ledger on three bookies, with some entries acknowledged."""
        assert node.ledgers is not None
        writer = await node.ledgers.create(replicas=3, acks=2)
        known = self.cluster.known.setdefault(writer.ledger_id, LedgerFacts())
        _ = self.cluster.listen(writer, known)  # what fails it is of no interest
        await self._submit(writer, entries)
        while writer.last_acked < entries - 1:
            await asyncio.sleep(STEP_S)
        return writer

    async def _submit(self, writer: LedgerWriter, entries: int) -> None:
        for _ in range(entries):
            try:
                writer.submit(payload(writer.ledger_id, writer.last_submitted + 1))
            except (Overloaded, BokiError):
                return

    async def _recover_once(self, node: Node, ledger_id: int) -> None:
        assert node.ledgers is not None
        try:
            await self.cluster.read_ledger(node.ledgers, ledger_id, node.name, recover=True)
        except BokiError:
            pass  # it is tried again in the end

    async def _fenced(self, ledger_id: int, *hosts: str) -> None:
        """Waits until these bookies are."""
        for _ in range(FENCED_STEPS):
            bookies = self.cluster.bookies()
            if all(host in bookies and bookies[host].storage.of(ledger_id).is_fenced(ledger_id) for host in hosts):
                return
            await asyncio.sleep(STEP_S)
