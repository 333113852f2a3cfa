"""The status board: asks how the cluster is while somebody looks, and remembers the last minutes.

One loop asks for all who look, every `status_every_s`, and ends a minute after the last look: a cluster that nobody looks
at is not asked. What could not be asked is in the answer as its `problem`, beside what was known before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from boki_common.errors import BokiError
from boki_common.version import VERSION
from boki_gateway.cluster_state import ClusterFacts, ClusterState
from boki_gateway.history import History, HistoryAnswer, Sample

UNWATCHED_S: Final = 60.0


class GatewayState(msgspec.Struct, frozen=True):
    """This gateway."""

    version: str
    uptime_s: float
    requests: Annotated[int, Meta(description="Requests answered since it began.")]
    streams: Annotated[int, Meta(description="Open event streams.")]


class StatusAnswer(msgspec.Struct, frozen=True):
    """How everything is."""

    cluster: ClusterState
    gateway: GatewayState
    history: HistoryAnswer
    age_s: Annotated[float, Meta(description="How long ago the cluster was asked.")]


class StatusBoard:
    """See the module."""

    def __init__(
        self, facts: ClusterFacts, *, every_s: float, requests: Callable[[], int], streams: Callable[[], int]
    ) -> None:
        self._facts = facts
        self._every_s = every_s
        self._requests = requests
        self._streams = streams
        self._now: Final = asyncio.get_running_loop().time
        self._started = self._now()
        self._looked = self._started
        self._asked = self._started
        self._cluster = ClusterState()
        self._history = History()
        self._first: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> StatusAnswer:
        """The status, at most `every_s` old, or as old as asking the cluster takes."""
        now = self._looked = self._now()
        if self._task is None or self._task.done():
            self._first = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._watch(self._first), name="gateway status")
        assert self._first is not None
        await asyncio.shield(self._first)
        now = self._now()
        gateway = GatewayState(VERSION, round(now - self._started, 1), self._requests(), self._streams())
        return StatusAnswer(self._cluster, gateway, self._history.answer(now), round(now - self._asked, 2))

    async def close(self) -> None:
        """Stops asking. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._first is not None:
            self._first.cancel()

    async def _watch(self, first: asyncio.Future[None]) -> None:
        try:
            while self._now() - self._looked < UNWATCHED_S:
                await self._ask()
                if not first.done():
                    first.set_result(None)
                await asyncio.sleep(self._every_s)
        except Exception as fault:
            if first.done():
                raise
            first.set_exception(fault)

    async def _ask(self) -> None:
        try:
            self._cluster = await self._facts.collect()
        except BokiError as error:
            self._cluster = msgspec.structs.replace(self._cluster, problem=f"the cluster cannot be asked: {error}")
            return
        finally:
            self._asked = self._now()
        found = self._cluster
        self._history.add(Sample(self._asked, found.records, found.entries, found.lag_entries, self._requests()))
