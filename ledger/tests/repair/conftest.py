"""Scripted bookies that come and go, a closed ledger on three of five, and an auditor without a pace."""

from __future__ import annotations

from typing import Final

import pytest

from boki_common.bookkeeper import layout
from boki_ledger.repair.auditor import Auditor
from boki_ledger.repair.settings import RepairLimits
from boki_ledger.testing.ledgers import Ledgers

LIMITS: Final = RepairLimits(bytes_per_s=0, ledgers_at_once=1)


async def register(ledgers: Ledgers, *bookies: str) -> None:
    """These are there, and take writes."""
    for bookie in bookies:
        await ledgers.store.create(layout.bookie_path(bookie), b"")
    ledgers.bookies.register(*sorted({*ledgers.bookies.writable_ids, *bookies}))


async def lose(ledgers: Ledgers, *bookies: str) -> None:
    ledgers.bookies.crash(*bookies)
    ledgers.bookies.register(*(one for one in ledgers.bookies.writable_ids if one not in bookies))
    for bookie in bookies:
        await ledgers.store.delete(layout.bookie_path(bookie), version=0)


async def closed_on(ledgers: Ledgers, *bookies: str, count: int = 3) -> int:
    ledgers.bookies.register(*bookies)
    ledger_id = await ledgers.closed(*[b"entry"] * count)
    assert set((await ledgers.metadata(ledger_id)).ensembles[0][1]) == set(bookies)
    return ledger_id


async def members(ledgers: Ledgers, ledger_id: int) -> set[str]:
    return set((await ledgers.metadata(ledger_id)).ensembles[0][1])


@pytest.fixture
async def ledger_id(ledgers: Ledgers) -> int:
    """Closed, on b1, b2 and b3, of five."""
    found = await closed_on(ledgers, "b1", "b2", "b3")
    await register(ledgers, "b1", "b2", "b3", "b4", "b5")
    return found


@pytest.fixture
def auditor(ledgers: Ledgers) -> Auditor:
    return ledgers.client.auditor(LIMITS)
