"""A writer that ends while it is being closed: whoever waits for the close gets the reason."""

from __future__ import annotations

import asyncio

import pytest
from tests.writers import close_begun

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import ClosedError, LedgerFenced, Unauthorized
from boki_ledger.testing.ledgers import Ledgers, deliver, submit
from boki_ledger.write.writer import LedgerWriter


async def test_a_close_that_meets_a_refusal_says_so_instead_of_being_cancelled(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    held = ledgers.bookies.hold(kind="add", recovery=False)
    writer.submit(b"0")
    closing = await close_begun(ledgers, writer)
    ledgers.bookies.answer(V2Status.UNAUTHORIZED, bookie="b2")
    held.release()
    with pytest.raises(Unauthorized):
        await closing
    ledgers.store.gate.set()


async def test_a_bookie_that_refuses_a_late_entry_of_a_closed_ledger_fails_no_close(
    ledgers: Ledgers, writer: LedgerWriter
) -> None:
    late = ledgers.bookies.hold(kind="add", bookie="b3")
    assert await writer.append(b"0") == 0
    closing = await close_begun(ledgers, writer)
    ledgers.bookies.answer(V2Status.FENCED, bookie="b3")
    await deliver(late)
    assert not closing.done()
    ledgers.store.gate.set()
    assert await closing == 0
    metadata = await ledgers.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 0)


async def test_a_close_that_comes_after_a_recovery_fails_with_its_fence(ledgers: Ledgers, writer: LedgerWriter) -> None:
    late = [ledgers.bookies.hold(kind="add", bookie=bookie, recovery=False) for bookie in ("b2", "b3")]
    await submit(writer, b"0")
    closing = await close_begun(ledgers, writer)
    reader = await (await ledgers.other_client()).open(writer.ledger_id, recover=True)
    assert reader.last_entry == 0, "the writer closes at -1"
    await deliver(*late)
    assert not closing.done()
    ledgers.store.gate.set()
    with pytest.raises(LedgerFenced):
        await closing
    assert isinstance(writer.failed, LedgerFenced)


async def test_a_fence_that_a_close_met_counts_when_the_metadata_cannot_be_asked(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    held = ledgers.bookies.hold(kind="add")
    waiting = asyncio.ensure_future(writer.append(b"0"))
    closing = await close_begun(ledgers, writer)
    ledgers.bookies.answer(V2Status.FENCED)
    await deliver(held)
    assert not closing.done() and not waiting.done()
    ledgers.store.disconnect()
    ledgers.store.gate.set()
    with pytest.raises(LedgerFenced):
        await closing
    with pytest.raises(LedgerFenced):
        await waiting


async def test_a_close_of_a_writer_that_is_abandoned_meanwhile_says_so(ledgers: Ledgers, writer: LedgerWriter) -> None:
    closing = await close_begun(ledgers, writer)
    writer.abandon()
    with pytest.raises(ClosedError, match="abandoned"):
        await closing
    ledgers.store.gate.set()


async def test_whoever_cancels_a_close_is_cancelled(ledgers: Ledgers, writer: LedgerWriter) -> None:
    closing = await close_begun(ledgers, writer)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    ledgers.store.gate.set()
    assert await writer.close() == -1, "the close itself goes on"
