"""Whole engines and a sequencer in one process, on scripted bookies and a metadata store in memory: for tests of engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from boki_common.net.connection import Address
from boki_common.runtime.ports import Clock
from boki_ledger.testing.ledgers import CountingRandom, Ledgers, until
from boki_logbook.engine import Engine
from boki_logbook.settings import EngineSettings
from boki_metalog.sequencer import Sequencer
from boki_metalog.settings import SequencerSettings

ANYWHERE: Final = Address("127.0.0.1", 0)


class FixedClock:
    """Port `Clock`."""

    def now_ms(self) -> int:
        return 1_000


class EngineCluster:
    """What runs is closed in reverse order. `ledgers` is to be started before anything else."""

    def __init__(self) -> None:
        self.ledgers = Ledgers()
        self.rng = CountingRandom(1_000_000)
        self.running: list[Engine | Sequencer] = []

    async def start_sequencer(self) -> Sequencer:
        client = await self.ledgers.other_client()
        made = await Sequencer.start(
            metadata=self.ledgers.stores[-1],
            ledgers=client,
            address=ANYWHERE,
            clock=FixedClock(),
            rng=self.rng,
            settings=SequencerSettings(retry_first_s=0.005, retry_limit_s=0.01),
        )
        self.running.append(made)
        return made

    async def make_engine(
        self, settings: EngineSettings, *, addresses: Sequence[Address] = (ANYWHERE,), clock: Clock | None = None
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
        )
        self.running.append(made)
        return made

    async def start_engine(self, settings: EngineSettings, *, clock: Clock | None = None) -> Engine:
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
