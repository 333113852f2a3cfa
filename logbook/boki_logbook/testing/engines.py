"""Whole engines and a sequencer in one process, on scripted bookies and a metadata store in memory: for tests of engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.net.connection import Address
from boki_common.runtime.ports import MachineClock
from boki_common.testing.machine import CountingRandom, ManualClock
from boki_ledger.testing.ledgers import Ledgers, until
from boki_logbook.engine import Engine
from boki_logbook.settings import EngineSettings
from boki_metalog.sequencer.sequencer import Sequencer
from boki_metalog.settings import SequencerSettings

ANYWHERE: Final = Address("127.0.0.1", 0)


def url_of(engine: Engine) -> str:
    return f"boki://{engine.addresses[0]}"


class EngineCluster:
    """What runs is closed in reverse order. `ledgers` is to be started before anything else. `token`: of all of them."""

    def __init__(self, token: ClusterToken = NO_TOKEN) -> None:
        self.token = token
        self.ledgers = Ledgers()
        self.rng = CountingRandom(1_000_000)
        self.running: list[Engine | Sequencer] = []

    async def start_sequencer(self) -> Sequencer:
        client = await self.ledgers.other_client()
        made = await Sequencer(
            metadata=self.ledgers.stores[-1],
            ledgers=client,
            clock=ManualClock(),
            rng=self.rng,
            settings=SequencerSettings(retry_first_s=0.005, retry_limit_s=0.01),
            token=self.token,
        ).start(ANYWHERE)
        self.running.append(made)
        return made

    async def make_engine(
        self, settings: EngineSettings, *, addresses: Sequence[Address] = (ANYWHERE,), clock: MachineClock | None = None
    ) -> Engine:
        """An engine that listens. With a `clock` it is compared with the sequencer's, which stands at 1 s."""
        client = await self.ledgers.other_client()
        made = await Engine.start(
            metadata=self.ledgers.stores[-1],
            ledgers=client,
            addresses=addresses,
            rng=self.rng,
            settings=settings,
            clock=clock,
            token=self.token,
        )
        self.running.append(made)
        return made

    async def start_engine(self, settings: EngineSettings, *, clock: MachineClock | None = None) -> Engine:
        """`make_engine`, and it has caught up."""
        made = await self.make_engine(settings, clock=clock)
        await made.ready()
        return made

    async def until(self, holds: Callable[[], object]) -> None:
        await until(lambda: bool(holds()))

    async def close(self) -> None:
        for one in reversed(self.running):
            await one.close()
        await self.ledgers.close()
