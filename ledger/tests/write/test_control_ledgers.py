"""Control ledgers on bookies whose disks are full: they use the reserves where too few others take writes, and no longer."""

from __future__ import annotations

import pytest

from boki_common.bookkeeper import layout
from boki_common.errors import NotEnoughBookies
from boki_common.net.connection import Address
from boki_ledger.testing.ledgers import Ledgers, submit, turns, until
from boki_ledger.write.writer import LedgerWriter


def fill(ledgers: Ledgers, *bookies: str) -> None:
    """These bookies are read-only: of a test's five, and registered so."""
    for bookie in ("b1", "b2", "b3", "b4", "b5"):
        ledgers.bookies[bookie].full = bookie in bookies
    ledgers.bookies.register(*(bookie for bookie in ("b1", "b2", "b3") if bookie not in bookies))


async def control(ledgers: Ledgers) -> LedgerWriter:
    writer = await ledgers.client.create(control=True)
    assert await writer.append(b"before") == 0
    return writer


async def test_its_entries_are_acknowledged_from_the_reserves_of_full_disks(ledgers: Ledgers) -> None:
    writer = await control(ledgers)
    fill(ledgers, "b1", "b2", "b3")
    assert await writer.append(b"trim") == 1
    assert writer.in_reserve
    assert await writer.append(b"x" * 20_000) == 2, "a frame of several buffers"
    copies = [bookie for bookie in ("b1", "b2", "b3") if 2 in ledgers.bookies.stored(bookie, writer.ledger_id)]
    assert len(copies) == 2, "no more reserves are used than an acknowledgement needs"


async def test_user_data_wait_until_a_disk_has_room(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    fill(ledgers, "b1", "b2", "b3")
    await submit(writer, b"data")
    assert writer.last_acked == -1 and not writer.in_reserve
    fill(ledgers)
    await until(lambda: writer.last_acked == 0)


async def test_one_full_disk_of_three_is_spared(ledgers: Ledgers) -> None:
    writer = await control(ledgers)
    fill(ledgers, "b3")
    assert await writer.append(b"cut") == 1
    await turns()
    assert not writer.in_reserve
    assert ledgers.bookies.stored("b3", writer.ledger_id) == [0]


async def test_reserves_are_left_when_enough_bookies_take_writes(ledgers: Ledgers) -> None:
    writer = await control(ledgers)
    fill(ledgers, "b1", "b2", "b3")
    await writer.append(b"trim")
    fill(ledgers, "b1")
    assert not writer.in_reserve
    assert await writer.append(b"cut") == 2
    await turns()
    assert not writer.in_reserve
    assert 2 not in ledgers.bookies.stored("b1", writer.ledger_id)


async def test_a_bookie_that_takes_writes_replaces_one_that_uses_its_reserve(ledgers: Ledgers) -> None:
    writer = await control(ledgers)
    fill(ledgers, "b1", "b2", "b3")
    await writer.append(b"trim")
    ledgers.bookies.register("b4", "b5")
    assert await writer.append(b"cut") == 2
    await turns()
    ensemble = (await ledgers.metadata(writer.ledger_id)).ensembles[-1][1]
    assert {"b4", "b5"} <= set(ensemble)
    assert not writer.in_reserve


async def test_a_reserve_that_is_used_up_waits_for_room(ledgers: Ledgers) -> None:
    writer = await control(ledgers)
    fill(ledgers, "b1", "b2", "b3")
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].has_reserve = False
    await submit(writer, b"trim")
    assert writer.last_acked == 0 and writer.failed is None
    fill(ledgers)
    await until(lambda: writer.last_acked == 1)
    assert not writer.in_reserve


@pytest.mark.usefixtures("unhurried")
async def test_full_disks_prove_that_nobody_fenced_without_a_new_entry(ledgers: Ledgers) -> None:
    writer = await control(ledgers)
    fill(ledgers, "b1", "b2", "b3")
    await writer.append(b"trim")
    await turns()
    proven: list[bool] = []
    assert writer.ask_unfenced(proven.append)
    await until(lambda: proven == [True])
    assert writer.last_submitted == 1


async def test_a_new_one_lies_on_full_bookies_where_too_few_others_are(ledgers: Ledgers) -> None:
    fill(ledgers, "b1", "b2", "b3")
    for bookie in ("b1", "b2", "b3"):
        await layout.register_bookie(ledgers.store, bookie, Address("127.0.0.1", 1), read_only=True)
    with pytest.raises(NotEnoughBookies):
        await ledgers.client.create()
    writer = await ledgers.client.create(control=True)
    assert await writer.append(b"snapshot") == 0
    assert set((await ledgers.metadata(writer.ledger_id)).ensembles[0][1]) == {"b1", "b2", "b3"}
