"""Defects of the original protocol, each as the messages that show it. See docs/defects.md; what other modules assert is not repeated."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import LedgerFenced
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import QUICK, Ledgers, deliver, submit, turns


async def recovered(ledgers: Ledgers, ledger_id: int, *, reads_in_flight: int = 64) -> LedgerReader:
    client = await ledgers.other_client(replace(QUICK, reads_in_flight=reads_in_flight))
    return await client.open(ledger_id, recover=True)


async def test_an_ack_during_the_change_does_not_move_where_the_change_begins(ledgers: Ledgers) -> None:
    """apache/bookkeeper#4651: the LAC moved between LAC + 1 and the swap, so acknowledged entries were said to be on a
    bookie that was never sent them. E = Qw = 2, Qa = 1."""
    ledgers.bookies.register("b1", "b2")
    writer = await ledgers.striped(2, 2, 1)
    late = ledgers.bookies.hold(bookie="b2", kind="add", answer=True)
    ledgers.store.gate.clear()
    ledgers.bookies.crash("b1")
    for _ in range(3):
        writer.submit(b"x")
    ledgers.bookies.register("b2", "b3")
    await turns()
    await deliver(late)
    ledgers.store.gate.set()
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b3", "b2")),)
    assert writer.last_acked == 2
    for entry_id in range(3):
        assert ledgers.copies(writer.ledger_id, metadata, entry_id) in (["b3", "b2"], ["b2", "b3"])
    writer.abandon()


async def test_with_two_slots_replaced_nothing_completes_on_the_acks_of_one_that_left(ledgers: Ledgers) -> None:
    """apache/bookkeeper#4097, #4194: an entry completed between the clearing of two slots, on an ack of the second."""
    writer = await ledgers.client.create()
    to_b1 = ledgers.bookies.hold(bookie="b1", kind="add")
    from_b3 = ledgers.bookies.hold(bookie="b3", kind="add", answer=True)
    await submit(writer, b"0")
    ledgers.store.gate.clear()
    ledgers.bookies.crash("b1", "b2")
    to_b1.discard()
    ledgers.bookies.register("b1", "b2", "b3", "b4", "b5")
    await turns()
    from_b3.release()
    to_new = [ledgers.bookies.hold(bookie=name, kind="add") for name in ("b4", "b5")]
    ledgers.store.gate.set()
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b4", "b5", "b3")),)
    assert ledgers.copies(writer.ledger_id, metadata, 0) == ["b3"]
    assert writer.last_acked == -1, "b2 acknowledged it, but the metadata does not name b2 any more"
    await deliver(*to_new)
    assert writer.last_acked == 0
    assert len(ledgers.copies(writer.ledger_id, metadata, 0)) == 3


@pytest.mark.parametrize("status", [V2Status.READ_ONLY, V2Status.IO_ERROR, V2Status.TOO_MANY_REQUESTS])
async def test_a_bookie_that_refuses_adds_is_replaced_when_another_is_free(ledgers: Ledgers, status: V2Status) -> None:
    """§9b 19: that a quorum of others acknowledges is no reason to leave entries one copy short for ever."""
    writer = await ledgers.client.create()
    ledgers.bookies.answer(status, bookie="b2", kind="add")
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    assert await writer.append(b"0") == 0
    await submit(writer, b"1")
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles[-1][1] == ("b1", "b4", "b3")
    assert writer.failed is None and writer.last_acked == 1
    assert await writer.append(b"2") == 2
    await turns()
    assert len(ledgers.copies(writer.ledger_id, metadata, 2)) == 3


async def test_what_was_sent_before_a_fence_and_arrives_after_it_is_not_acknowledged(ledgers: Ledgers) -> None:
    """apache/bookkeeper#2614: adds under way on every bookie while a recovery runs from start to end."""
    writer = await ledgers.client.create()
    await writer.append(b"0")
    await turns()
    under_way = ledgers.bookies.hold(kind="add", recovery=False)
    await submit(writer, *[b"x"] * 4)
    reader = await recovered(ledgers, writer.ledger_id)
    assert reader.last_entry == 0
    await deliver(under_way)
    assert writer.last_acked == 0
    assert isinstance(writer.failed, LedgerFenced)


@pytest.mark.parametrize("reads_in_flight", [1, 3, 64])
async def test_a_second_recovery_may_run_whole_at_any_step_of_the_first(ledgers: Ledgers, reads_in_flight: int) -> None:
    """§9b 7: before each message of a recovery in turn, all of a second one happens. One end, one length, all entries."""
    ledgers.bookies.hold(bookie="b3", kind="add", recovery=False)
    for step in itertools.count():
        writer = await ledgers.client.create()
        await submit(writer, *[b"xy"] * 3)
        first, second, more = await raced(ledgers, writer.ledger_id, step, reads_in_flight)
        assert {(one.last_entry, one.metadata.length) for one in (first, second)} == {(2, 6)}, step
        for reader in (first, second):
            assert [bytes(one) for one in await reader.read(0, 2)] == [b"xy"] * 3
        if not more:
            assert step > 15, "a recovery has that many messages at least"
            return


async def raced(
    ledgers: Ledgers, ledger_id: int, step: int, reads_in_flight: int
) -> tuple[LedgerReader, LedgerReader, bool]:
    """Two recoveries: after `step` messages of the first, the second; and whether the first had messages left then."""
    held = [ledgers.bookies.hold(), ledgers.bookies.hold(answer=True)]
    first = asyncio.ensure_future(recovered(ledgers, ledger_id, reads_in_flight=reads_in_flight))
    await turns(200)
    for _ in range(step):
        kept = held[0].kept or held[1].kept
        if not kept:
            break
        kept.pop(0)[1]()
        await turns(20)
    left = [travel for one in held for _, travel in one.kept]
    for one in held:
        one.discard()
        one.active = False
    second = await recovered(ledgers, ledger_id, reads_in_flight=reads_in_flight)
    for travel in left:
        travel()
    return await first, second, bool(left)
