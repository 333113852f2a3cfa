"""Whose denials count in one recovery: Apache's bookies are believed once their fence is proven to be durable.

An Apache bookie that stores nothing of an entry, or of the ledger, denies it before the fence that came with the question is
on disk (its other answers wait). If its process dies in between, it forgets the fence, and the writer may add again what
was denied. So a first denial proves nothing, but begins a proof, in three steps:

    1  the denial itself, on some connection: the fence is in that process
    2  a force of the ledger succeeds: what *a* process of this bookie took before is durable
    3  one more fencing read is answered on the connection of step 1: it is the same process, so the force covered the fence

From then on its denials count; the fence outlives the process. Whatever was denied before is asked again. Ours need none of
this, and those that `member_trust` does not trust are never believed.

At the end of the recovery the cookies of all bookies whose denials counted are looked at once more (`end_search`). One that was
formatted anew meanwhile forgot all. And where one of ours lost its disk, another one may answer at its address for as long as
the lost one is registered there: the cookie of the lost one is gone by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.status import V2Status
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.metadata.member_trust import Trust
from boki_ledger.rules.answers import answer_of
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieTransport, ReadAnswer

_log = get_logger("ledger")


class FenceProofs:
    """See the module. `proven(bookie)` is called when a bookie's denials begin to count, `ended()` when a
    proof is over, whatever came of it."""

    def __init__(
        self,
        ledger_id: int,
        key: bytes,
        trusts: Mapping[BookieId, Trust],
        *,
        transport: BookieTransport,
        settings: LedgerSettings,
        proven: Callable[[BookieId], None],
        ended: Callable[[], None],
    ) -> None:
        self._ledger_id = ledger_id
        self._key = key
        self._trusts = trusts
        self._transport = transport
        self._settings = settings
        self._on_proven = proven
        self._on_ended = ended
        self._proven: dict[BookieId, None] = {}
        self._sure: dict[BookieId, None] = {}
        self._proofs: dict[BookieId, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> bool:
        """Whether a denial may begin to count without being asked for again."""
        return bool(self._proofs)

    @property
    def distrusted(self) -> list[BookieId]:
        """Members whose denials never count."""
        return sorted(bookie for bookie, trust in self._trusts.items() if trust is Trust.NEVER)

    def counts(self, bookie: BookieId, denial: ReadAnswer) -> bool:
        """Whether a denial counts; if not, it may begin a proof."""
        trust = self._trusts[bookie]
        if trust is Trust.SURE:
            self._sure[bookie] = None
            return True
        if bookie in self._proven:
            return True
        if trust is Trust.AFTER_FORCE and bookie not in self._proofs:
            proof = asyncio.create_task(self._prove(bookie, denial.connection), name=f"fence proof of bookie {bookie}")
            self._proofs[bookie] = proof
        return False

    @property
    def relied_on(self) -> list[BookieId]:
        """Bookies whose denials counted."""
        return sorted((*self._proven, *self._sure))

    async def close(self) -> None:
        """Ends the proofs that are under way. Idempotent."""
        proofs = list(self._proofs.values())
        for proof in proofs:
            proof.cancel()
        if proofs:
            await asyncio.wait(proofs)

    async def _prove(self, bookie: BookieId, connection: int) -> None:
        try:
            async with asyncio.timeout(self._settings.answer_timeout_s):
                forced = await self._transport.force(bookie, self._ledger_id)
                if forced.status is not V2Status.OK:
                    _log.info("fence not proven", ledger_id=self._ledger_id, bookie_id=bookie, error=forced.error)
                    return
                again = await self._transport.read(bookie, self._ledger_id, v2.LAST_ENTRY, fence_key=self._key)
        except TimeoutError:
            _log.info("fence not proven", ledger_id=self._ledger_id, bookie_id=bookie, error="no answer in time")
            return
        finally:
            del self._proofs[bookie]
            self._on_ended()
        if answer_of(again.status).definite and again.connection == connection:
            self._proven[bookie] = None
            self._on_proven(bookie)
