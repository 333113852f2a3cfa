"""The status board: asks how the cluster is while somebody looks, and remembers the last minutes.

One loop asks for all who look, every `status_every_s`, and ends a minute after the last look: a cluster that nobody looks
at is not asked. It begins with two questions shortly after one another, so that the first answer has rates. What could not be
asked is in the answer as its `problem`, beside what was known before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from boki_common.background_tasks import ended
from boki_common.errors import BokiError
from boki_common.version import VERSION
from boki_gateway.calls.cluster_state import ClusterFacts, ClusterState
from boki_gateway.history import History, HistoryAnswer, Sample

UNWATCHED_S: Final = 60.0
FIRST_RATES_S: Final = 0.4
"""Between the first two questions, at most: a rate is over some time."""


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
        self,
        facts: ClusterFacts,
        *,
        every_s: float,
        requests: Callable[[], int],
        streams: Callable[[], int],
        answers: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        """`answers`: how long requests took, by LATENCY_BUCKETS_S; the rest says itself what it is."""
        self._answers = answers
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
        await ended(self._task)
        if self._first is not None:
            self._first.cancel()

    async def _watch(self, first: asyncio.Future[None]) -> None:
        try:
            pause_s = min(FIRST_RATES_S, self._every_s)
            for asked_s, found in await asyncio.gather(self._ask(0), self._ask(pause_s)):
                self._take(asked_s, found)
            first.set_result(None)
            while self._now() - self._looked < UNWATCHED_S:
                self._take(*await self._ask(self._every_s))
        except Exception as fault:
            if first.done():
                raise
            first.set_exception(fault)

    async def _ask(self, after_s: float) -> tuple[float, ClusterState | BokiError]:
        """When it asked, and what came of it. Parts that do not answer take time; the others answer at once."""
        await asyncio.sleep(after_s)
        asked_s = self._now()
        try:
            return asked_s, await self._facts.collect()
        except BokiError as error:
            return asked_s, error

    def _take(self, asked_s: float, found: ClusterState | BokiError) -> None:
        self._asked = asked_s
        if isinstance(found, BokiError):
            self._cluster = msgspec.structs.replace(self._cluster, problem=f"the cluster cannot be asked: {found}")
            return
        self._cluster = found
        self._history.add(
            Sample(
                asked_s,
                found.records,
                found.entries,
                found.lag_entries,
                self._requests(),
                found.acks,
                tuple(self._answers()),
            )
        )
