"""An idle writer sends bookies its LAC, so that readers see the last entry without another one, or a close.

While adds flow the LAC rides in them. When it has not moved for `explicit_lac_ms`, it is written by itself to the bookies
that store its entry: once for however many entries, never once per add. Busy or not, there is at most one timer.

It is a courtesy: nobody waits for it, and what fails is counted and forgotten, as the next add carries the LAC anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from boki_common.bookkeeper.digests import Digest
from boki_common.bookkeeper.status import V2Status
from boki_common.ids import BookieId
from boki_ledger.metric_definitions import LedgerMetrics
from boki_ledger.rules.lac_body import encode_lac
from boki_ledger.transport import BookieTransport, Outcome

_SENT: Final = "sent"
_FAILED: Final = "failed"


class ExplicitLac:
    """See the module. `waiting` is whether the timer runs: then `moved` need not be called."""

    def __init__(
        self,
        ledger_id: int,
        digest: Digest,
        master_key: bytes,
        *,
        lac: Callable[[], int],
        replicas: Callable[[int], Sequence[BookieId]],
        transport: BookieTransport,
        metrics: LedgerMetrics,
        pause_ms: float,
    ) -> None:
        """`replicas`: of an entry. `pause_ms`: how long the LAC must not have moved; 0: nothing is ever sent."""
        self.waiting = pause_ms <= 0
        self._ledger_id = ledger_id
        self._digest = digest
        self._key = master_key
        self._lac = lac
        self._replicas = replicas
        self._transport = transport
        self._metrics = metrics
        self._pause_s = pause_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._seen = -1
        self._timer: asyncio.TimerHandle | None = None

    def moved(self) -> None:
        """The LAC moved; only while not `waiting`."""
        self.waiting = True
        self._seen = self._lac()
        self._timer = self._loop.call_later(self._pause_s, self._look)

    def close(self) -> None:
        """Sends nothing any more. Idempotent."""
        self.waiting = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        lac = self._lac()
        if lac != self._seen:
            self.moved()
            return
        self.waiting = False
        self._timer = None
        body = encode_lac(self._ledger_id, lac, self._digest)
        for bookie in self._replicas(lac):
            self._transport.write_lac(bookie, self._ledger_id, self._key, body).add_done_callback(self._count)

    def _count(self, future: asyncio.Future[Outcome]) -> None:
        if not future.cancelled():
            outcome = _SENT if future.result().status is V2Status.OK else _FAILED
            self._metrics.explicit_lacs.labels(outcome).inc()
