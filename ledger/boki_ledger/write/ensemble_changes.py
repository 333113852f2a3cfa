"""Replaces bookies that fail a writer: freeze completion, commit the new fragment, clear the acks, send again, complete.

- A change begins when a slot fails, or uses the reserve of a full disk, and another bookie is free: at once while an entry waits,
  else after `idle_change_s`, so that a ledger which is not written now does not name a lost bookie for ever, and a restarted bookie
  keeps its places. An idle writer also replaces bookies that are not registered, or take no writes: they may be drained.
  One change at a time; what fails meanwhile is taken by the next.
- Nothing completes between the decision and the end of the swap. While its outcome is unknown completion stays frozen.
- A metadata store that is away fails nobody: a change that was not sent is tried again after growing pauses.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from boki_common.errors import BokiError, MetadataUnavailable
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.metadata.ensemble_change import choose_replacements
from boki_ledger.metadata.own_metadata import OwnMetadata
from boki_ledger.ports import LedgerPorts
from boki_ledger.write.replicated_adds import ReplicatedAdds

_log = get_logger("ledger")


class ChangesOwner(Protocol):
    """The writer. Called synchronously."""

    @property
    def writes(self) -> bool:
        """Whether it takes entries: neither closing nor ended."""

    def acks_arrived(self) -> None:
        """Completion goes on."""

    def change_failed(self, error: BokiError) -> None:
        """The ledger is not the writer's any more."""


class EnsembleChanges:
    """See the module."""

    def __init__(
        self, ledger_id: int, adds: ReplicatedAdds, metadata: OwnMetadata, ports: LedgerPorts, owner: ChangesOwner
    ) -> None:
        self._ledger_id = ledger_id
        self._adds = adds
        self._metadata = metadata
        self._ports = ports
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._suspects: dict[BookieId, float] = {}
        """Bookies that failed lately, and until when they are not chosen."""
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        """The end of the wait of an idle writer with failing slots."""
        self._backoff = ports.settings.backoff()

    def slots_failed(self) -> None:
        """Some slots of the ensemble fail."""
        until = self._loop.time() + self._ports.settings.suspect_s
        for index in self._adds.failing_slots():
            self._suspects[self._adds.ensemble[index]] = until
        self.consider()

    def consider(self) -> None:
        """Starts a change if one is due; otherwise this is called again later."""
        if self._task is not None or self._retry is not None or not self._owner.writes:
            return
        if self._adds.acks.in_flight:
            self._begin(idle=False)
        elif self._idle is None and self._to_replace(idle=True):
            self._idle = self._loop.call_later(self._ports.settings.idle_change_s, self._idle_for_long)

    def _idle_for_long(self) -> None:
        self._idle = None
        if self._task is None and self._retry is None and self._owner.writes:
            self._begin(idle=not self._adds.acks.in_flight)

    def _begin(self, *, idle: bool) -> None:
        if self._replacements(idle=idle):
            self._task = asyncio.create_task(self._change(idle=idle), name=f"ensemble of ledger {self._ledger_id}")

    async def wait_until_idle(self) -> None:
        """Waits for the change that is under way. Raises nothing: errors went to the writer."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Nothing is changed any more. Idempotent."""
        for timer in (self._retry, self._idle):
            if timer is not None:
                timer.cancel()
        task = self._task
        if task is not None and task is not asyncio.current_task(self._loop):
            task.cancel()

    def _to_replace(self, *, idle: bool) -> list[int]:
        """Return slots that fail, or are on a reserve; of an idle writer also those of bookies that are not known to take writes."""
        failing = self._adds.slots_to_replace()
        if not idle:
            return failing
        chooser = self._ports.chooser
        there = {*chooser.writable(), *chooser.quarantined()}
        absent = (slot for slot, bookie in enumerate(self._adds.ensemble) if bookie not in there)
        return sorted({*failing, *absent})

    def _replacements(self, *, idle: bool) -> dict[int, BookieId]:
        failing = self._to_replace(idle=idle)
        if not failing:
            return {}
        now = self._loop.time()
        self._suspects = {bookie: until for bookie, until in self._suspects.items() if until > now}
        spares = [bookie for bookie in self._ports.spare_bookies() if bookie not in self._suspects]
        return choose_replacements(self._adds.ensemble, failing, spares)

    async def _change(self, *, idle: bool) -> None:
        """Commits one change after another while there are failing slots and free bookies."""
        acks = self._adds.acks
        acks.frozen = True
        try:
            while self._owner.writes and (replacements := self._replacements(idle=idle)):
                await self._commit(replacements)
        except MetadataUnavailable as error:
            _log.warning("ensemble change put off", ledger_id=self._ledger_id, error=error)
            self._retry = self._loop.call_later(self._backoff.next(), self._try_again)
        except BokiError as error:
            self._owner.change_failed(error)
            return
        finally:
            self._task = None
        if self._owner.writes:
            acks.frozen = False
            self._owner.acks_arrived()

    def _try_again(self) -> None:
        self._retry = None
        self.consider()

    async def _commit(self, replacements: dict[int, BookieId]) -> None:
        ensemble, first_entry = self._adds.ensemble, self._adds.acks.lac + 1
        await self._metadata.change_ensemble(replacements, first_entry=first_entry)
        self._backoff.reset()
        if self._adds.closed:
            return
        self._ports.metrics.ensemble_changes.inc()
        _log.info(
            "ensemble changed",
            ledger_id=self._ledger_id,
            first_entry=first_entry,
            replaced=[f"{ensemble[slot]} by {bookie}" for slot, bookie in sorted(replacements.items())],
        )
        self._adds.replace(replacements)
