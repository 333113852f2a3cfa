"""Hosts of one group in virtual time, whose records and partitions move where a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from boki.testing import MemoryCluster
from boki_common.runtime.ports import Clock
from bokiflow.testing import LoopClock
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event as LogEvent
from bokirsm import App, Host, Plugin
from libs.tests.rsm.traces import traces_of

LEASE_S = 30.0
"""Longer than a test takes."""


@asynccontextmanager
async def hosts(
    app: App, count: int, clock: Clock | None = None, plugins: Sequence[Plugin[Any]] | None = None
) -> AsyncIterator[tuple[MemoryCluster, list[Host]]]:
    """Start hosts, each a process of its own, of which the first one owns all partitions."""
    async with MemoryCluster(clock=clock or LoopClock()) as cluster:
        several = [None] * count if plugins is None else plugins
        started = [
            await started_on(cluster, app, f"h{number}", plugins=[one] if one else ())
            for number, one in enumerate(several)
        ]
        yield cluster, started
        for one in started:
            if one.lane._open:  # it was not killed
                await one.__aexit__(None, None, None)


async def started_on(cluster: MemoryCluster, app: App, name: str, plugins: Sequence[Plugin[Any]] = ()) -> Host:
    """Start a host. Once it has taken what is free, it moves partitions only where the test says so.

    Under the name of one that died it takes over at once.
    """
    book = (await cluster.connect()).book("b")
    host = await Host(app, book, name=name, lease_s=LEASE_S, stuck_after_s=None, plugins=plugins).__aenter__()
    host._round = no_round  # type: ignore[method-assign]
    return host


async def no_round() -> None:
    """Deal no partitions."""


async def take_over(host: Host, *partitions: int) -> None:
    """Claim partitions over their owner, which hears of it by the log."""
    await host._owner.refresh()
    claim = await host._owner.claim(list(partitions))
    await host.lane.take(dict.fromkeys(partitions, claim))


async def traces(cluster: MemoryCluster) -> dict[str, list[str]]:
    return await traces_of((await cluster.connect()).book("b"))


class Held:
    """Appends of a log that wait before they are sent. They are sent although their process died meanwhile.

    Attributes:
        waiting: set once the first of them waits.
        go: lets it, and all later ones, be sent.
        parts: the appends that were asked for.
    """

    def __init__(self, log: Log, holds: Callable[[Contribution], bool]) -> None:
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()
        self.parts: list[Contribution] = []
        self._sending: set[asyncio.Task[int]] = set()
        append = log.append

        async def held(one: Contribution, **options: Any) -> int:
            if holds(one):
                self.waiting.set()
                await self.go.wait()
            return await append(one, **options)

        async def sent(one: Contribution, **options: Any) -> int:
            self.parts.append(one)
            task = asyncio.create_task(held(one, **options))
            self._sending.add(task)
            task.add_done_callback(self._sent)
            return await asyncio.shield(task)

        log.append = sent  # type: ignore[method-assign]

    def _sent(self, task: asyncio.Task[int]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # its caller got it, or died


def of(kind: type[LogEvent]) -> Callable[[Contribution], bool]:
    """Return a function that tells whether an append has events of a kind."""
    return lambda part: any(isinstance(event, kind) for event in part.events)
