"""A writer that ends while it is being closed: whoever waits for the close hears why."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.errors import ClosedError, LedgerFenced
from boki_ledger.testing.ledgers import Ledgers, turns


async def test_a_close_that_meets_a_fence_says_so_instead_of_being_cancelled(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    held = ledgers.bookies.hold(kind="add", recovery=False)
    writer.submit(b"0")
    ledgers.store.gate.clear()
    closing = asyncio.ensure_future(writer.close())
    await turns()
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].read(writer.ledger_id, -1, writer._key)
    held.release()
    with pytest.raises(LedgerFenced):
        await closing
    ledgers.store.gate.set()


async def test_a_close_of_a_writer_that_is_abandoned_meanwhile_says_so(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    ledgers.store.gate.clear()
    closing = asyncio.ensure_future(writer.close())
    await turns()
    writer.abandon()
    with pytest.raises(ClosedError, match="abandoned"):
        await closing
    ledgers.store.gate.set()


async def test_whoever_cancels_a_close_is_cancelled(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    ledgers.store.gate.clear()
    closing = asyncio.ensure_future(writer.close())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    ledgers.store.gate.set()
    assert await writer.close() == -1, "the close itself goes on"
