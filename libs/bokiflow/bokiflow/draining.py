"""Graceful stop of a worker: it hands its workflows over, partition by partition, and keeps those whose steps run, for a while.

    draining = Draining(worker)
    cut = await draining.hand_over(finish_s=30); ...; await draining.leave()

- The first record gives up every partition, and names those that have a running step (`Leaving`). Other workers claim all partitions at
  once, so new workflows wait for nothing. They take over the workflows of all partitions that are not named.
- A named partition is kept as a whole: its other workflows stay where they are, and begin no step. As soon as its last step has ended and
  the outcome is in the log, the next record does not name it any more. A partition that is not named is never named again.
- What is handed over was stopped here before the record says so. Safety does not rest on that: each record of a workflow expects the newest
  claim of its fence, whatever workers believe of one another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.executor import Executor
from bokiflow.partition_owner import PartitionOwner
from bokilib import tags

FINISH_LOOK_S: Final = 0.01
"""Between two looks at which steps run."""
CANCELLED_S: Final = 1.0
"""A body that is cancelled has so long to end. It is left behind after that, so that it holds up no other workflow."""
ATTEMPTS: Final = 4
"""To give up partitions, while other workers take some of them."""
NAMED: Final = 16
"""Bodies that one line of the log names."""

log = get_logger(__name__)


class DrainingHost(Protocol):
    """The worker that is being drained."""

    @property
    def name(self) -> str: ...

    @property
    def executors(self) -> Mapping[str, Executor]:
        """The workflows that it runs, by their ids."""

    @property
    def loading(self) -> Iterable[str]:
        """Ids of workflows that it is about to run."""

    def handed_over(self, id: str) -> None:
        """Note that a workflow does not run here any more."""


class Draining:
    """See the module."""

    def __init__(self, host: DrainingHost, partitions: PartitionOwner) -> None:
        self._host: Final = host
        self._partitions: Final = partitions

    async def hand_over(self, finish_s: float) -> list[str]:
        """Hand over all partitions but those whose steps run, and these as their steps end; return when none is left, or the time is up.

        Returns:
            The steps that run still: "charge of order-7".
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + finish_s
        kept = set(range(tags.PARTITIONS))
        told: set[int] | None = None
        while (kept := kept & self._busy()) and loop.time() < until_s:
            await self._stop([id for id in self._host.executors if tags.partition_of(id) not in kept])
            if (told != kept or self._partitions.mine) and await self._told(kept, until_s):
                told = kept
            await asyncio.sleep(FINISH_LOOK_S)
        return [f"{step} of {one.id}" for one in self._host.executors.values() for step in one.running_steps]

    def _busy(self) -> set[int]:
        """Return the partitions that have a workflow with a running step, a record under way, or a claim."""
        ids = [one.id for one in self._host.executors.values() if not one.idle]
        return {tags.partition_of(id) for id in (*ids, *self._host.loading)}

    async def _stop(self, ids: list[str]) -> None:
        ending = [task for id in ids for task in self._host.executors[id].close()]
        for id in ids:
            self._host.handed_over(id)
        await ended(ending, self._host.name)

    async def _told(self, kept: Iterable[int], until_s: float) -> bool:
        """Tell the others, if that is possible now; return whether it was."""
        try:
            async with asyncio.timeout_at(until_s):
                return await self._partitions.leave(sorted(kept))
        except TimeoutError:
            return False
        except BokiError as error:
            log.warning(
                "worker drained: partitions not given up yet, tried again", worker=self._host.name, error=repr(error)
            )
            return False

    async def leave(self) -> None:
        """Give up everything: nothing runs here any more.

        Raises:
            Errors of appends: the others wait for a lease.
        """
        for _ in range(ATTEMPTS):
            if await self._partitions.leave(()):
                return
        log.warning("worker drained: partitions moved while they were given up", worker=self._host.name)


async def ended(cancelled: list[asyncio.Task[None]], worker: str) -> None:
    """Wait for tasks that were cancelled; leave behind those that do not end in time."""
    if not cancelled:
        return
    done, late = await asyncio.wait(cancelled, timeout=CANCELLED_S)
    await asyncio.gather(*done, return_exceptions=True)
    if not late:
        return
    for task in late:
        task.add_done_callback(lambda one: one.cancelled() or one.exception())
    names = sorted(task.get_name() for task in late)
    log.warning(
        "bodies left behind: they run on though they were cancelled, their outcomes are not recorded",
        worker=worker,
        bodies=names[:NAMED],
        count=len(names),
    )
