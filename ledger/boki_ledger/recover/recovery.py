"""Recovery of one ledger: fence it, find its end, make every entry up to it durable, close it. By anybody, any number at once.

    1  OPEN → IN_RECOVERY by compare-and-swap: from here on the writer can neither change its ensemble nor close.
    2  Its end is found, and all entries up to it are made durable (`end_search`).
    3  At the proven end one compare-and-swap writes ensembles, end, length and CLOSED. If somebody else closed first, his end
       is the end; what we wrote beyond it nobody reads.

If the end cannot be proven now the ledger stays IN_RECOVERY, and anybody may try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import RecoveryFailed
from boki_common.logs import get_logger
from boki_common.runtime.ports import Buffer
from boki_ledger.metadata.metadata_update import SeenMetadata
from boki_ledger.ports import LedgerPorts
from boki_ledger.recover.end_search import EndSearch, LedgerEnd, check_floor

_log = get_logger("ledger")


class LedgerRecovery:
    """One run, see the module. Use `run` once."""

    def __init__(
        self,
        ledger_id: int,
        ports: LedgerPorts,
        *,
        floor: int,
        carried: Mapping[int, Buffer],
        known: SeenMetadata,
    ) -> None:
        """`known`: the ledger's metadata as its opener read them, which saves reading them again. `carried`: payloads of
        entries that belong into the ledger, by entry id."""
        self._ledger_id = ledger_id
        self._ports = ports
        self._floor = floor
        self._carried = carried
        self._known = known

    async def run(self) -> SeenMetadata:
        """Closes the ledger, or finds it closed.

        Raises:
            RecoveryFailed: no proof of the end; the ledger stays in recovery. NotEnoughBookies: what was found could not
                be made durable. Both: try again.
            LedgerDataMissing: the end is proven to lie below the floor; nothing was closed.
            Unauthorized, NoSuchLedger, MetadataUnavailable.
        """
        loop, metrics = asyncio.get_running_loop(), self._ports.metrics
        started = loop.time()
        outcome = "failed"
        try:
            seen = await self._recover()
            check_floor(self._ledger_id, seen.metadata.last_entry, self._floor)
            outcome = "closed"
        finally:
            metrics.recoveries.labels(outcome).inc()
            metrics.recovery_time.observe(loop.time() - started)
        return seen

    async def _recover(self) -> SeenMetadata:
        updates, retry_for_s = self._ports.updates, self._ports.settings.retry_for_s
        seen = await updates.change(self._ledger_id, _to_recovery, known=self._known, retry_for_s=retry_for_s)
        if seen.metadata.state is LedgerState.CLOSED:
            return seen
        search = EndSearch(self._ledger_id, seen.metadata, self._ports, floor=self._floor, carried=self._carried)
        try:
            found = await search.run()
        finally:
            await search.close()
        closed = await self._close(seen, found)
        _log.info(
            "ledger recovered", ledger_id=self._ledger_id, last_entry=closed.metadata.last_entry, start=found.start
        )
        return closed

    async def _close(self, seen: SeenMetadata, found: LedgerEnd) -> SeenMetadata:
        def closed(current: LedgerMetadata) -> LedgerMetadata | None:
            if current.state is LedgerState.CLOSED:
                return None
            if current.state is not LedgerState.IN_RECOVERY or current.ensembles != seen.metadata.ensembles:
                raise RecoveryFailed(
                    f"the metadata of ledger {self._ledger_id} changed while it was recovered: expected IN_RECOVERY with "
                    f"{len(seen.metadata.ensembles)} fragments as read, found {current.state.name} with other ones; recover "
                    "it again",
                    ledger_id=self._ledger_id,
                )
            return replace(
                current,
                state=LedgerState.CLOSED,
                last_entry=found.last_entry,
                length=found.length,
                ensembles=found.fragments,
            )

        retry_for_s = self._ports.settings.retry_for_s
        return await self._ports.updates.change(self._ledger_id, closed, known=seen, retry_for_s=retry_for_s)


def _to_recovery(current: LedgerMetadata) -> LedgerMetadata | None:
    if current.state is LedgerState.OPEN:
        return replace(current, state=LedgerState.IN_RECOVERY)
    return None
