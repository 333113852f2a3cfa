"""What each bookie says of an entry: whole, damaged, denied, refused, silent; nobody's word hides another's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import NoSuchLedger
from boki_ledger.testing.ledgers import QUICK, Ledgers


async def a_ledger(ledgers: Ledgers) -> int:
    return await ledgers.closed(b"entry 0", b"entry 1", b"entry 2", password=b"secret")


async def test_each_bookie_speaks_for_itself(ledgers: Ledgers) -> None:
    ledger_id = await a_ledger(ledgers)
    assert set((await ledgers.client.words_of_replicas(ledger_id, 1)).values()) == {"has it whole"}
    ledgers.bookies.damage("b1", ledger_id, 1)
    del ledgers.bookies["b2"].entries[ledger_id][1]
    ledgers.bookies.answer(V2Status.IO_ERROR, bookie="b3", kind="read", entry_id=1)
    words = await ledgers.client.words_of_replicas(ledger_id, 1)
    assert words["b1"].startswith("has a damaged copy: ") and words["b2"] == "never had it (NO_ENTRY)"  # type: ignore[index]
    assert words["b3"] == "answered IO_ERROR" and len(words) == 3  # type: ignore[index]
    del ledgers.bookies["b2"].entries[ledger_id]
    assert "NO_LEDGER" in (await ledgers.client.words_of_replicas(ledger_id, 2))["b2"]  # type: ignore[index]


async def test_bookies_that_are_silent_or_away_are_reported(ledgers: Ledgers) -> None:
    ledger_id = await a_ledger(ledgers)
    client = await ledgers.other_client(replace(QUICK, answer_timeout_s=0.05))
    held = ledgers.bookies.hold(bookie="b2", kind="read")
    ledgers.bookies.crash("b3")
    words = await client.words_of_replicas(ledger_id, 0)
    assert words["b2"] == "gave no answer in 0.05 s" and words["b3"].startswith("could not be asked: ")  # type: ignore[index]
    held.discard()


async def test_of_a_ledger_that_nobody_knows_nobody_is_asked(ledgers: Ledgers) -> None:
    with pytest.raises(NoSuchLedger):
        await ledgers.client.words_of_replicas(10**6, 0)
