"""The graceful stop of a worker: it hands its workflows over, and keeps those with running steps for a while.

    draining = Draining(worker, group, partitions)
    draining.begin(); draining.finish_within(30)
    await draining.hand_over(); ...; await draining.leave()

- The first record gives up every partition and names the workflows that have a running step (`Leaving`). Other workers claim all partitions
  at once, so new workflows do not wait. They take over all workflows that are not named.
- Once the last step of a named workflow has ended and its outcome is in the log, the next record leaves the workflow out. A workflow that
  is left out is never named again.
- If the ids do not fit into a record (`NAMED_BYTES`), it names only their partitions, as programs do that do not know ids. All workflows
  of a partition that is named without ids are kept.
- No step begins, nor a further attempt of one. A workflow whose step waits for a thread or for its next attempt is not kept.
- The time of a drain bounds steps. Records that are due then have a bound of their own (`RECORD_S`): a step that did not begin is withdrawn
  in the log, or the next worker would assume that it began.
- A workflow is stopped here before a record hands it over. Safety does not depend on that: each record of a workflow expects the newest
  claim of its fence.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.execute.body import CancelledBodies
from bokiflow.execute.executor import Executor
from bokiflow.model.flow_events import Leaving
from bokiflow.worker.partitions import leave
from bokilib.follow.lease_rules import LEAVE_S
from bokilib.partitions.owner import PartitionOwner
from bokilib.records import tags

FINISH_POLL_S: Final = 0.01
"""Seconds between two checks of the running steps."""
RECORD_S: Final = 2.0
"""Seconds for the records of ended and withdrawn steps, after the time of steps."""
NAMED_BYTES: Final = 65_536
"""Bytes of ids that one record names, at most."""
ATTEMPTS: Final = 4
"""Attempts to give up partitions while other workers claim some of them."""

log = get_logger(__name__)


class DrainingHost(Protocol):
    """The worker that is being drained."""

    @property
    def name(self) -> str: ...

    @property
    def cancelled(self) -> CancelledBodies: ...

    @property
    def executors(self) -> Mapping[str, Executor]:
        """Running workflows by id."""

    @property
    def claiming(self) -> Iterable[str]:
        """Ids of workflows that the worker is claiming."""

    def handed_over(self, id: str) -> None:
        """Note that a workflow does not run here any more."""

    def given_up(self) -> None:
        """Note that other workers own the partitions of workflows that still run here."""


class Draining:
    """The drain of one worker; see the module.

    Attributes:
        task: the task that drains the worker; None before a drain.
        cut: steps that were cancelled when the worker stopped, as "charge of order-7".
    """

    def __init__(self, host: DrainingHost, group: str, partitions: PartitionOwner[Leaving]) -> None:
        self._host: Final = host
        self._group: Final = group
        self._partitions: Final = partitions
        self.task: asyncio.Task[None] | None = None
        self.cut: Final[list[str]] = []
        self._until_s = math.inf
        self._announcing: asyncio.Timeout | None = None

    def finish_within(self, finish_s: float) -> None:
        """Shorten the time of running steps to `finish_s` seconds from now."""
        self._until_s = min(self._until_s, asyncio.get_running_loop().time() + finish_s)
        if self._announcing is not None and not self._announcing.expired():
            self._announcing.reschedule(self._until_s)

    def begin(self) -> None:
        """Begin no step after this turn of the event loop."""
        for one in self._host.executors.values():
            one.finish()

    async def hand_over(self) -> None:
        """Hand over idle workflows at once, and others as their steps end. Return when none is left, or when the time has passed."""
        loop = asyncio.get_running_loop()
        kept = self._busy()
        announced: set[str] | None = None
        while (kept := kept & self._busy()) and loop.time() < self._until_s:
            await self._stop([id for id in self._host.executors if id not in kept])
            if (announced != kept or self._partitions.mine) and await self._announce(kept):
                announced = kept
                self._host.given_up()
            await asyncio.sleep(FINISH_POLL_S)
        last_s = loop.time() + RECORD_S
        while any(one.recording for one in self._host.executors.values()) and loop.time() < last_s:  # noqa: ASYNC110 - records end without an event
            await asyncio.sleep(FINISH_POLL_S)

    def _busy(self) -> set[str]:
        """Return the ids of workflows that have a running step or a record under way, or are being claimed."""
        return {*(one.id for one in self._host.executors.values() if not one.idle), *self._host.claiming}

    async def _stop(self, ids: list[str]) -> None:
        ending = [task for id in ids for task in self._host.executors[id].close()]
        for id in ids:
            self._host.handed_over(id)
        await self._host.cancelled.ended(ending)

    async def _announce(self, kept: Iterable[str]) -> bool:
        """Tell other workers which workflows are kept. Return False if the record was not appended."""
        runs = sorted(kept)
        keeps = sorted({tags.partition_of(id) for id in runs})
        if sum(len(id.encode()) for id in runs) > NAMED_BYTES:
            runs = []
        try:
            async with asyncio.timeout_at(self._until_s) as self._announcing:
                return await leave(self._partitions, self._group, keeps, runs)
        except TimeoutError:
            return False
        except BokiError as error:
            log.warning(
                "worker drained: partitions not given up yet, retried", worker=self._host.name, error=repr(error)
            )
            return False
        finally:
            self._announcing = None

    async def leave(self) -> None:
        """Give up all partitions, once nothing runs here. If the append fails, other workers take over after a lease."""
        try:
            async with asyncio.timeout(LEAVE_S):
                for _ in range(ATTEMPTS):
                    if await leave(self._partitions, self._group):
                        return
            reason = "they moved while they were given up"
        except TimeoutError:
            reason = f"no answer within {LEAVE_S:g} s"
        except BokiError as failure:
            reason = f"the append failed: {failure!r}"
        log.warning(
            "worker drained: partitions not given up, other workers take them over after a lease",
            worker=self._host.name,
            reason=reason,
        )
