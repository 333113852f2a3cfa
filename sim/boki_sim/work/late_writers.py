"""What comes after the faults where a cluster forgets idle named writers (EXPIRE): each of them is used once more, some too soon
to be forgotten, some when they have been, while sequencers and engines die.

It comes after the work, because a copy of a writer's first number that is under way for longer than writers are kept would
begin it anew; ages are settings that no copy outlives, and the faults' own seconds are over by then. Nobody sends a first
number here for the same reason. Somebody appends all the while: the log's time passes with its cuts only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from boki_common.errors import BokiError
from boki_sim.clusters.cluster import Cluster
from boki_sim.work.call_mix import draw_call_mix
from boki_sim.work.operations import APPEND, BOOKS, History
from boki_sim.work.recorder import Recorder
from boki_sim.work.workload_appends import send
from boki_sim.work.workload_numbers import NamedWriter
from boki_sim.world.process import SimProcess
from boki_sim.world.randomness import stream

SOON: Final = (0.1, 0.3)
"""Of the time after which writers are forgotten: most are known then still. Their sessions use them again when they are not."""
LATE: Final = (2.4, 2.8)
"""An engine that was killed meanwhile begins to watch anew: so they are forgotten by then."""
TICKS: Final = 20
"""Cuts, at least, within that time."""
TIMEOUT_S: Final = 15.0


class LateWriters:
    """See the module."""

    def __init__(self, cluster: Cluster, history: History, seed: int) -> None:
        self._cluster = cluster
        self._history = history
        self._seed = seed
        self._numbers = stream(seed, "late hour")
        self._age_s = cluster.shape.forgets_after_s

    async def run(self, working: Iterable[asyncio.Task[None]]) -> None:
        """Waits for the work of the clients to end; returns when all writers were used again."""
        await asyncio.wait(working)
        ticking = self._process("ticker").start(self._tick())
        killing = asyncio.ensure_future(self._kill())
        calling = []
        for number, (writer, book) in enumerate(sorted(self._history.notes)):
            soon = (self._pause_s(SOON),) if self._numbers.random() < 0.5 else ()
            pauses = (*soon, self._pause_s(LATE))
            calling.append(self._process(f"late-{number}").start(self._use_again(number, writer, book, pauses)))
        if calling:
            await asyncio.wait(calling)
        await killing
        ticking.cancel()

    def _process(self, name: str) -> SimProcess:
        return self._cluster.loop.process(name, self._cluster.machine())

    def _pause_s(self, between: tuple[float, float]) -> float:
        return self._numbers.uniform(*between) * self._age_s

    def _recorder(self, name: str) -> Recorder:
        mix = draw_call_mix(stream(self._seed, "habits", name))
        mix = replace(mix, timeout_s=TIMEOUT_S, conditional=0.0)
        return Recorder(self._cluster.loop, name, stream(self._seed, "client", name), mix, self._history)

    async def _use_again(self, number: int, writer: str, book: str, pauses: Iterable[float]) -> None:
        client = await self._cluster.connected()
        named = NamedWriter(self._recorder(f"late-{number}"), writer)
        for pause in pauses:
            await asyncio.sleep(pause)
            error = await named.go_on(client.book(book))
            self._cluster.trace.add(f"late-{number}", "goes on as", writer, book, error)
        try:
            await client.close()
        except BokiError:
            pass  # the error is in the history

    async def _tick(self) -> None:
        client, recorder = await self._cluster.connected(), self._recorder("ticker")
        while True:
            for name in BOOKS:
                book = client.book(name)
                await send(recorder, book, recorder.begin(book, APPEND, data=recorder.data()))
            await asyncio.sleep(self._age_s / TICKS)

    async def _kill(self) -> None:
        """A sequencer and an engine die about when writers are forgotten; they come back by themselves."""
        for kind in ("sequencer", "engine"):
            await asyncio.sleep(self._numbers.uniform(0.4, 0.6) * self._age_s)
            running = [node for node in self._cluster.of(kind) if node.running]
            if running:
                self._cluster.end_node(self._numbers.choice(running))
