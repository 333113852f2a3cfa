"""What every ledger of a client works with: the way to its bookies and its metadata, settings and metrics."""

from __future__ import annotations

from typing import NamedTuple

from boki_common.ids import BookieId
from boki_common.runtime.ports import Random
from boki_ledger.metadata.metadata_update import LedgerUpdates
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieChooser, BookieTransport


class LedgerPorts(NamedTuple):
    """See the module. Shared by the writers, recoveries and readers of a client."""

    transport: BookieTransport
    chooser: BookieChooser
    updates: LedgerUpdates
    rng: Random
    settings: LedgerSettings
    metrics: LedgerMetrics

    def spare_bookies(self) -> list[BookieId]:
        """Bookies that take writes, in random order; those in quarantine last."""
        return [*self.rng.shuffled(self.chooser.writable()), *self.rng.shuffled(self.chooser.quarantined())]
