"""Waiting until what was submitted is acknowledged, for who did not wait when he submitted it."""

from __future__ import annotations

import asyncio

import pytest
from tests.writers import close_begun

from boki_common.errors import BokiError, ClosedError, LedgerClosed, LedgerFenced, MetadataUnavailable
from boki_ledger.testing.ledgers import Ledgers, deliver, turns
from boki_ledger.write.writer import LedgerWriter


def waiting_for(writer: LedgerWriter, *entries: int) -> list[asyncio.Task[None]]:
    return [asyncio.get_running_loop().create_task(writer.acknowledged(entry_id)) for entry_id in entries]


async def test_who_waits_is_woken_when_all_up_to_his_entry_is_acknowledged(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    held = {entry_id: ledgers.bookies.hold(kind="add", entry_id=entry_id) for entry_id in range(3)}
    appending = asyncio.ensure_future(writer.append(b"0"))
    await asyncio.sleep(0)
    writer.submit(b"1")
    later = asyncio.ensure_future(writer.append(b"2"))
    last, first, second, again = waiting_for(writer, 2, 0, 1, 1)
    await turns()
    await deliver(held[1])
    assert not any(one.done() for one in (appending, later, last, first, second, again)), "entry 0 is missing"
    await deliver(held[0])
    assert appending.done() and first.done() and second.done() and again.done()
    assert not later.done() and not last.done()
    held[2].release()
    await last
    assert await later == 2


async def test_what_is_acknowledged_is_not_waited_for_even_at_the_end(writer: LedgerWriter) -> None:
    await writer.acknowledged(-1)
    await writer.append(b"0")
    await writer.acknowledged(0)
    await writer.close()
    await writer.acknowledged(0)
    with pytest.raises(ClosedError):
        await writer.acknowledged(1)


async def test_what_is_not_submitted_yet_is_waited_for_and_holds_up_nobody(writer: LedgerWriter) -> None:
    (second,) = waiting_for(writer, 1)
    await turns()
    assert await writer.append(b"0") == 0
    assert not second.done()
    assert await writer.append(b"1") == 1
    await second


async def test_who_gives_up_holds_up_nobody(ledgers: Ledgers, writer: LedgerWriter) -> None:
    held = ledgers.bookies.hold(kind="add")
    writer.submit(b"0")
    gone, stays = waiting_for(writer, 0, 0)
    await turns()
    gone.cancel()
    held.release()
    await stays
    assert gone.cancelled() and await writer.append(b"1") == 1


@pytest.mark.parametrize("how", ["fenced", "closed", "abandoned"])
async def test_the_end_of_the_writer_is_notified(ledgers: Ledgers, writer: LedgerWriter, how: str) -> None:
    await writer.append(b"0")
    held = ledgers.bookies.hold(kind="add", recovery=False)
    writer.submit(b"1")
    waiting = waiting_for(writer, 1, 7)
    await turns()
    expected: type[BokiError]
    if how == "fenced":
        expected = LedgerFenced
        await (await ledgers.other_client()).open(writer.ledger_id, recover=True)
        held.release()
    elif how == "closed":
        expected = LedgerClosed
        assert await writer.close() == 0
    else:
        expected = ClosedError
        writer.abandon()
    for one in waiting:
        with pytest.raises(expected):
            await one
    with pytest.raises(LedgerFenced if how == "fenced" else ClosedError):
        await writer.acknowledged(1)
    await writer.acknowledged(0)


async def test_while_it_closes_nobody_begins_to_wait_and_who_waits_gets_the_outcome(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    held = ledgers.bookies.hold(kind="add")
    writer.submit(b"0")
    (waiting,) = waiting_for(writer, 0)
    await turns()
    closing = await close_begun(ledgers, writer)
    with pytest.raises(ClosedError):
        await writer.acknowledged(0)
    ledgers.store.disconnect()
    ledgers.store.gate.set()
    with pytest.raises(MetadataUnavailable):
        await closing
    assert not waiting.done(), "it is open still"
    held.release()
    await waiting
    await writer.acknowledged(0)


async def test_a_close_behind_what_is_acknowledged_has_it(ledgers: Ledgers, writer: LedgerWriter) -> None:
    held = ledgers.bookies.hold(kind="add")
    for number in range(3):
        writer.submit(b"%d" % number)

    async def close() -> int:
        await writer.acknowledged(2)
        return await writer.close()

    closing = asyncio.ensure_future(close())
    await turns()
    held.release()
    assert await closing == 2
