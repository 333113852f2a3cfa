"""Makes durable what bookies acknowledged before it was: force, asked of all bookies of an ensemble.

All of them must answer, because it is not remembered which of them acknowledged which entry. One that does not proves
nothing about the others, and nothing is lost by asking again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import LedgerError
from boki_common.ids import BookieId
from boki_ledger.transport import BookieTransport


async def force_all(transport: BookieTransport, ledger_id: int, bookies: Sequence[BookieId]) -> None:
    """Returns once every bookie made durable what it took of the ledger before this call. Raises LedgerError: one did not, or
    did not say so: what is durable is unknown."""
    answers = await asyncio.gather(*(transport.force(bookie, ledger_id) for bookie in bookies))
    for bookie, answer in zip(bookies, answers, strict=True):
        if answer.status is not V2Status.OK:
            found = answer.error if answer.status is None else answer.status.name
            raise LedgerError(
                f"expected all bookies of ledger {ledger_id} to force it, found {found} of bookie {bookie}: the LAC stays "
                "where it is; force it again",
                ledger_id=ledger_id,
                bookie_id=bookie,
            ) from answer.error
