"""Somebody who changes a cluster while faults happen: rolls a log, moves slots between two of them, or drains a bookie.

Each change is a process of its own, on a machine of its own, with what an administrator's command has: a session of the metadata
store and a ledger client. Its answers do not matter; the state it leaves must hold.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from boki_common.bookkeeper.layout import available_bookies
from boki_common.errors import BokiError
from boki_ledger.client import LedgerClient
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.terms.metadata_tree import ensure_view
from boki_sim.world.randomness import SimRandom, stream

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_sim.clusters.cluster import Cluster
    from boki_sim.faults.faults import Fault

RETRY_FOR_S: Final = 5.0
SLOTS: Final = 1_024


class Administrator:
    """One change of one cluster: `run` it as a process of its own."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.process = cluster.loop.process(f"admin-{number}", cluster.machine())
        self._cluster = cluster
        self._numbers = stream(cluster.seed, "admin", number)

    async def run(self, fault: Fault) -> None:
        """One change: "roll", "move" or "drain"."""
        cluster, numbers = self._cluster, self._numbers
        store = cluster.store_of(self.process)
        try:
            await store.start()
            token = cluster.tokens.of(self.process.host)
            ledgers = LedgerClient(metadata=store, rng=SimRandom(numbers), settings=cluster.shape.ledger, token=token)
            await ledgers.start()
            if fault.kind == "drain":
                await self._drain(ledgers, store, fault)
                await ledgers.close()
                await store.close()
                return
            asking = numbers.random() < 0.5  # else every metalog is fenced, and recovered under load
            changes = LogChanges(
                store, ledgers, SimRandom(numbers), retry_for_s=RETRY_FOR_S, asking=asking, token=token
            )
            logs = sorted((await ensure_view(store)).view.logs)
            if fault.kind == "roll":
                await changes.roll(numbers.choice(logs))
            else:
                first = numbers.randrange(SLOTS)
                slots = range(first, min(SLOTS, first + numbers.choice((1, 100, SLOTS))))
                await changes.move(slots, numbers.choice(logs))
            await ledgers.close()
            await store.close()
        except BokiError as error:
            cluster.trace.add(self.process.name, "got", type(error).__name__)
        finally:
            cluster.loop.call_soon(self.process.kill, context=cluster.loop.outside.context)

    async def _drain(self, ledgers: LedgerClient, store: MetadataStore, fault: Fault) -> None:
        """Drain a bookie that is there, if it may be, and perhaps cancel that. Raises BokiError."""
        listed = await available_bookies(store)
        if not listed:
            return
        bookie = self._numbers.choice(listed)
        refused = await ledgers.check_drain(bookie)
        self._cluster.trace.add(self.process.name, "drains", f"{bookie} {[one.why.value for one in refused]}")
        if refused:
            return
        await ledgers.begin_drain(bookie)
        if fault.amount:
            await asyncio.sleep(fault.seconds)
            await ledgers.cancel_drain(bookie)
