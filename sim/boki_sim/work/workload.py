"""What simulated clients do: append in every way the SDK offers, read in every way, trim, call each other, and record the
answers.

Each client is a process with one SDK client; its tasks share the session. A call to a child is a session of its own, that takes
over what its caller has seen and hands its own back; it runs on this client's connection or on another one.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import boki
from boki_common.errors import BokiError
from boki_sim.work import call_mix as activity
from boki_sim.work import workload_appends as appends
from boki_sim.work import workload_reads as reads
from boki_sim.work.call_mix import CallMix
from boki_sim.work.operations import AT, AUX, NEXT, PREV, SEEK, TAIL, TRIM, History
from boki_sim.work.recorder import Recorder
from boki_sim.work.workload_numbers import NamedWriter
from boki_sim.world.loop import SimLoop
from boki_sim.world.process import SimProcess

Activity = Callable[[Recorder, boki.Book], Awaitable[None]]

ACTIVITIES: Final[Mapping[str, Activity]] = {
    activity.ONE: appends.append,
    activity.BURST: appends.burst,
    activity.MANY: appends.many,
    activity.TICKET: appends.ticket,
    activity.LOCK: appends.lock,
    activity.SCAN: reads.scan,
    activity.WAIT: reads.wait_for_one,
    NEXT: partial(reads.read_somewhere, how=NEXT),
    PREV: partial(reads.read_somewhere, how=PREV),
    TAIL: partial(reads.read_somewhere, how=TAIL),
    AT: reads.read_the_place,
    SEEK: reads.seek,
    AUX: reads.leave_aux,
    TRIM: reads.trim,
}
CALLED: Final = (activity.ONE, activity.ONE, NEXT, TAIL, AT, activity.SCAN, activity.TICKET)
"""What a child does: one of these, some times."""
CALLED_TIMES: Final = 3


class SimClient:
    """One client process. `run` until the workload is over."""

    def __init__(
        self,
        loop: SimLoop,
        process: SimProcess,
        url: str,
        numbers: random.Random,
        mix: CallMix,
        history: History,
        client: Callable[..., boki.Client] = boki.connect,
    ) -> None:
        """`client`: as `boki.connect`."""
        self.process = process
        self.history = history
        self._loop = loop
        self._url = url
        self._client = client
        self._numbers = numbers
        self._mix = mix
        self._recorder = Recorder(loop, process.name, numbers, mix, history)
        self._writer = NamedWriter(self._recorder)
        self._calls = 0

    async def run(self, until: float) -> None:
        """Works until that time; then waits for what is under way."""
        try:
            client = await self._connect()
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._mix.tasks):
                        group.create_task(self._work(client, until))
            finally:
                await client.close()
        except BokiError:
            pass  # the error is in the history
        except Exception as error:
            self.history.defects.append(f"{self.process.name}: {error!r}")
            raise

    async def _connect(self) -> boki.Client:
        while True:
            try:
                return await self._client(self._url, timeout=self._mix.give_up_s)
            except BokiError:
                await asyncio.sleep(0.5)

    async def _work(self, client: boki.Client, until: float) -> None:
        mix, numbers = self._mix, self._numbers
        kinds, weights = list(mix.weights), list(mix.weights.values())
        while self._loop.now < until:
            kind = numbers.choices(kinds, weights)[0]
            book = client.book(numbers.choice(mix.books))
            if kind == activity.CALL:
                await self._call(client)
            elif kind == activity.NUMBERED:
                await self._writer.send_some(book)
            else:
                await ACTIVITIES[kind](self._recorder, book)
            await self._recorder.pause()

    # -- calls

    async def _call(self, client: boki.Client) -> None:
        """A child that sees what this session has seen, and whose own this session then sees."""
        self._calls += 1
        name = f"{self.process.name}/{self._calls}"
        other = await self._another() if self._numbers.random() < 0.5 else None
        session = (other or client).session(client.session_token())
        child = self._recorder.of_child(name)
        try:
            for _ in range(self._numbers.randrange(1, CALLED_TIMES + 1)):
                book = session.book(self._numbers.choice(self._mix.books))
                await ACTIVITIES[self._numbers.choice(CALLED)](child, book)
            await child.pause()
            client.merge(session.session_token())
            self._recorder.hand_over(child.session, self._recorder.session)
        finally:
            if other is not None:
                await other.close()

    async def _another(self) -> boki.Client | None:
        """A client of another engine, if one can be reached."""
        engines = self._url.split(",")
        self._numbers.shuffle(engines)
        try:
            return await self._client(",".join(engines), timeout=self._mix.give_up_s)
        except BokiError:
            return None
