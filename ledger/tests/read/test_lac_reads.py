"""How far a ledger is acknowledged, as bookies tell it: the highest of a quorum, whoever is down or older."""

from __future__ import annotations

import pytest

from boki_common.bookkeeper.digests import CRC32C
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import EntryUnknown
from boki_ledger.rules.lac_body import encode_lac
from boki_ledger.testing.ledgers import Ledgers
from boki_ledger.write.writer import LedgerWriter


async def test_the_higher_of_both_lacs_counts_from_whichever_bookie_it_comes(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    for _ in range(4):
        await writer.append(b"x")
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert await reader.read_lac() == 2
    for bookie in ("b1", "b2"):
        ledgers.bookies[bookie].lacs.write(writer.ledger_id, encode_lac(writer.ledger_id, 3, CRC32C))
    ledgers.bookies.crash("b3")
    assert await reader.read_lac() == 3


@pytest.mark.parametrize("status", [V2Status.BAD_REQUEST, V2Status.BAD_VERSION, V2Status.IO_ERROR])
async def test_a_bookie_that_does_not_serve_lac_reads_is_asked_for_its_last_entry(
    ledgers: Ledgers, status: V2Status
) -> None:
    ledgers.bookies.answer(status, kind="read_lac")
    writer = await ledgers.client.create()
    for _ in range(4):
        await writer.append(b"x")
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert await reader.read_lac() == 2


async def test_without_any_definite_answer_it_is_unknown(ledgers: Ledgers, writer: LedgerWriter) -> None:
    await writer.append(b"0")
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    ledgers.bookies.crash("b1", "b2", "b3")
    with pytest.raises(EntryUnknown, match="try again"):
        await reader.read_lac()
