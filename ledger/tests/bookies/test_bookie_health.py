"""Bookies in quarantine: who is chosen, who is notified, who is asked; on virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_common.ids import BookieId
from boki_common.testing.virtual_time import let_pass
from boki_ledger.bookies.bookie_health import HealthyBookies
from boki_ledger.testing.ledgers import QUICK, Ledgers, submit, turns
from boki_ledger.testing.scripted_bookies import ScriptedBookies

pytestmark = pytest.mark.usefixtures("virtual_time")
SETTINGS = replace(QUICK, quarantine_failures=2, quarantine_window_s=10.0, quarantine_s=100.0)


async def test_a_failing_bookie_is_left_out_until_its_time_is_over() -> None:
    registry = ScriptedBookies(["b1", "b2", "b3"])
    chooser = HealthyBookies(registry, SETTINGS)
    changes: list[tuple[BookieId, ...]] = []
    chooser.on_change(lambda: changes.append(chooser.writable()))
    chooser.failed(BookieId("b2"))
    assert chooser.writable() == ("b1", "b2", "b3")
    chooser.failed(BookieId("b2"))
    assert (chooser.writable(), chooser.quarantined()) == (("b1", "b3"), ("b2",))
    assert chooser.is_quarantined(BookieId("b2")) and not chooser.is_quarantined(BookieId("b1"))
    await let_pass(99.0)
    assert changes == []
    await let_pass(2.0)
    assert changes == [("b1", "b2", "b3")] and chooser.quarantined() == ()
    chooser.close()


async def test_changes_of_the_registrations_are_notified_until_nobody_listens() -> None:
    registry = ScriptedBookies(["b1", "b2", "b3"])
    chooser = HealthyBookies(registry, SETTINGS)
    changes: list[tuple[BookieId, ...]] = []
    stop = chooser.on_change(lambda: changes.append(chooser.writable()))
    registry.register("b1")
    assert changes == [("b1",)]
    stop()
    registry.register("b1", "b2")
    assert changes == [("b1",)]
    chooser.close()


async def test_new_ledgers_avoid_a_bookie_that_keeps_failing_unless_there_are_too_few(ledgers: Ledgers) -> None:
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    client = await ledgers.other_client(SETTINGS)
    writer = await client.create(replicas=4)
    for _ in range(2):
        ledgers.bookies.crash("b1")
        await submit(writer, b"x")
        ledgers.bookies.restart("b1")
        await turns()
    ensembles = [(await ledgers.metadata((await client.create()).ledger_id)).ensembles[0][1] for _ in range(3)]
    assert ensembles == [("b2", "b3", "b4")] * 3
    writer = await client.create(replicas=4)
    assert (await ledgers.metadata(writer.ledger_id)).ensembles[0][1] == ("b2", "b3", "b4", "b1")
    await let_pass(101.0)
    assert (await ledgers.metadata((await client.create()).ledger_id)).ensembles[0][1] == ("b1", "b2", "b3")


async def test_a_writer_without_another_spare_goes_on_with_a_bookie_in_quarantine(ledgers: Ledgers) -> None:
    """Found by the simulator: appends stood still for the whole quarantine although a bookie was up."""
    client = await ledgers.other_client(SETTINGS)
    for _ in range(2):
        client._chooser.failed(BookieId("b4"))
    ledgers.bookies.register("b1", "b2")
    writer = await client.create(replicas=2, acks=2)
    ledgers.bookies.register("b1", "b4")
    assert client._chooser.quarantined() == ("b4",)
    ledgers.bookies.crash("b2")
    begun = asyncio.get_running_loop().time()
    assert await writer.append(b"y") == 0
    assert asyncio.get_running_loop().time() - begun < 50, "not only when the quarantine is over"
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b1", "b4")),)


async def test_a_bookie_in_quarantine_is_asked_for_reads_last(ledgers: Ledgers) -> None:
    client = await ledgers.other_client(SETTINGS)
    writer = await client.create()
    for _ in range(6):
        await writer.append(b"x")
    await writer.close()
    reader = await client.open(writer.ledger_id, recover=False)
    end = ledgers.bookies.answer(V2Status.IO_ERROR, bookie="b1", kind="read")
    for _ in range(2):
        assert await reader.read(0, 0) == [b"x"]
    end()
    ledgers.bookies.seen.clear()
    for entry_id in range(6):
        assert await reader.read(entry_id, entry_id) == [b"x"]
    assert {message.bookie for message in ledgers.bookies.seen} == {"b2", "b3"}
    ledgers.bookies.crash("b2", "b3")
    assert await reader.read(1, 1) == [b"x"], "but it is asked"
