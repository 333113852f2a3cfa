"""What the writer of a ledger changes in its metadata: the ensemble, and in the end the state.

Both happen by compare-and-swap, and only while the ledger is open with the ensemble that the writer knows: whoever recovers a
ledger takes it out of that state first. A swap that was made already, by an attempt whose answer was lost, is found and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import LedgerFenced
from boki_common.ids import BookieId
from boki_ledger.metadata.ensemble_change import Fragment, change_ensemble
from boki_ledger.metadata.metadata_update import LedgerUpdates, SeenMetadata


class OwnMetadata:
    """See the module. `seen` is the newest that the writer wrote itself."""

    def __init__(self, ledger_id: int, seen: SeenMetadata, updates: LedgerUpdates) -> None:
        self.seen = seen
        self._ledger_id = ledger_id
        self._updates = updates

    async def change_ensemble(self, replacements: Mapping[int, BookieId], *, first_entry: int) -> None:
        """From `first_entry` on, other bookies have slots. Raises LedgerFenced, NoSuchLedger, MetadataUnavailable."""
        mine = self._last_fragment
        wanted = change_ensemble([mine], first_entry=first_entry, replacements=replacements)[-1]

        def changed(current: LedgerMetadata) -> LedgerMetadata | None:
            if current.state is LedgerState.OPEN and current.ensembles[-1] == wanted:
                return None
            self._check(current, mine)
            fragments = change_ensemble(current.ensembles, first_entry=first_entry, replacements=replacements)
            return replace(current, ensembles=fragments)

        self.seen = await self._updates.change(self._ledger_id, changed, known=self.seen)

    async def close(self, last: int, length: int, *, retry_for_s: float) -> None:
        """The ledger ends behind entry `last`. Raises LedgerFenced, NoSuchLedger, MetadataUnavailable."""
        mine = self._last_fragment

        def closed(current: LedgerMetadata) -> LedgerMetadata | None:
            if current.state is LedgerState.CLOSED and (current.last_entry, current.length) == (last, length):
                return None
            self._check(current, mine)
            return replace(current, state=LedgerState.CLOSED, last_entry=last, length=length)

        self.seen = await self._updates.change(self._ledger_id, closed, known=self.seen, retry_for_s=retry_for_s)

    @property
    def _last_fragment(self) -> Fragment:
        return self.seen.metadata.ensembles[-1]

    def _check(self, current: LedgerMetadata, mine: Fragment) -> None:
        """Raises LedgerFenced unless the ledger is open and its last fragment the writer's."""
        if current.state is not LedgerState.OPEN or current.ensembles[-1] != mine:
            raise LedgerFenced(
                f"expected ledger {self._ledger_id} to be open with the ensemble {mine[1]}, found it "
                f"{current.state.name} with {current.ensembles[-1][1]}: someone recovers or closed it; open it to see what "
                "it has, and write to a new one",
                ledger_id=self._ledger_id,
            )
