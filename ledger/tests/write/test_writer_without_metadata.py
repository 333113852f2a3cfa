"""The writer while the metadata store is away, or its answers are lost, during an ensemble change."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.metadata.memory import Fault
from boki_ledger.testing.ledgers import QUICK, Ledgers, deliver, submit, until


async def test_appends_go_on_while_the_metadata_store_is_away(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.store.disconnect()
    ledgers.bookies.crash("b1")
    assert [await writer.append(b"x") for _ in range(5)] == [0, 1, 2, 3, 4]
    ledgers.store.reconnect()
    ledgers.bookies.crash("b2")
    writer.submit(b"y")
    await until(lambda: writer.last_acked == 5)
    metadata = await ledgers.metadata(writer.ledger_id)
    for entry_id in range(6):
        assert len(ledgers.copies(writer.ledger_id, metadata, entry_id)) >= 2


async def test_a_change_that_was_put_off_is_tried_again_after_growing_pauses(ledgers: Ledgers) -> None:
    """By itself: no bookie, no entry and no check of hung bookies (a minute here) reminds the writer."""
    client = await ledgers.other_client(replace(QUICK, retry_least_s=0.01, retry_most_s=10.0, answer_timeout_s=240.0))
    store = ledgers.stores[-1]
    await client.create()  # so that b3 is known as one of ours, and only swaps are tried
    writer = await client.create(replicas=2, acks=2)
    ledgers.bookies.register("b2", "b3")
    store.disconnect()
    loop = asyncio.get_running_loop()
    began = loop.time()
    ledgers.bookies.crash("b1")
    writer.submit(b"x")
    await until(lambda: store.swaps == 4)
    assert loop.time() - began > 0.06, "10 + 20 + 40 ms, on a clock of milliseconds; equal pauses would take 30"
    store.reconnect()
    await until(lambda: writer.last_acked == 0)
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b3", "b2")),)


async def test_an_abandoned_writer_does_not_try_a_change_again(ledgers: Ledgers) -> None:
    await ledgers.client.create()
    writer = await ledgers.client.create(replicas=2, acks=2)
    ledgers.bookies.register("b2", "b3")
    ledgers.store.disconnect()
    ledgers.bookies.crash("b1")
    writer.submit(b"x")
    await until(lambda: ledgers.store.swaps == 2)
    writer.abandon()
    assert writer._changes._retry is None or writer._changes._retry.cancelled()


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST, Fault.DELAYED])
async def test_a_change_whose_answer_is_lost_is_settled_before_anything_is_acknowledged(
    ledgers: Ledgers, fault: Fault
) -> None:
    writer = await ledgers.client.create()
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.store.fail_next_write(fault)
    held = ledgers.bookies.hold(bookie="b3", kind="add", answer=True)
    ledgers.bookies.crash("b1")
    await submit(writer, b"x")
    await deliver(held)
    if fault is not Fault.ANSWER_LOST:
        assert writer.last_acked == -1
    await until(lambda: writer.last_acked == 0)
    ledgers.tree.deliver_delayed()
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b4", "b2", "b3")),)
    assert await writer.close() == 0
