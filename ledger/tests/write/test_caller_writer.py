"""Ledgers whose caller names the entry ids: any order, acknowledged in order, no holes, no id twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.errors import (
    ClosedError,
    InvalidArgument,
    LedgerClosed,
    LedgerFenced,
    Overloaded,
    RecordTooLarge,
)
from boki_common.limits import ENTRY_BYTES
from boki_ledger.testing.ledgers import QUICK, Ledgers, turns


async def test_entries_in_any_order_are_acknowledged_in_order(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create(entry_ids="caller")
    done: list[int] = []
    tasks = [asyncio.ensure_future(writer.append_at(number, b"%d" % number)) for number in (3, 1, 2)]
    for task in tasks:
        task.add_done_callback(lambda one: done.append(one.result()))
    await turns()
    assert done == [] and writer.last_acked == -1
    assert await writer.append_at(0, b"", b"0") == 0
    await asyncio.gather(*tasks)
    assert done == [1, 2, 3]
    assert await writer.close() == 3
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    assert [bytes(one) for one in await reader.read(0, 3)] == [b"0", b"1", b"2", b"3"]
    assert reader.metadata.length == 4, "as in a ledger that was written in order"


async def test_an_id_given_twice_is_refused_by_name(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create(entry_ids="caller")
    await writer.append_at(0, b"0")
    early = asyncio.ensure_future(writer.append_at(2, b"2"))
    await turns()
    for entry_id in (0, 2):
        with pytest.raises(InvalidArgument, match=f"found {entry_id} again"):
            await writer.append_at(entry_id, b"other")
    with pytest.raises(InvalidArgument, match="from 0"):
        await writer.append_at(-1, b"x")
    with pytest.raises(RecordTooLarge):
        await writer.append_at(1, bytes(ENTRY_BYTES + 1))
    assert await writer.append_at(1, b"1") == 1
    assert await early == 2


async def test_a_hole_at_close_is_named_and_can_still_be_filled(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create(entry_ids="caller")
    early = asyncio.ensure_future(writer.append_at(3, b"3"))
    await writer.append_at(0, b"0")
    with pytest.raises(InvalidArgument, match="entry 3 without entries 1 … 2"):
        await writer.close()
    await writer.append_at(1, b"1")
    with pytest.raises(InvalidArgument, match="entry 3 without entry 2:"):
        await writer.close()
    await writer.append_at(2, b"2")
    assert await early == 3
    assert await writer.close() == 3


async def test_what_exceeds_the_window_is_sent_when_acks_come(ledgers: Ledgers) -> None:
    client = await ledgers.other_client(replace(QUICK, window_entries=2))
    writer = await client.create(entry_ids="caller")
    held = ledgers.bookies.hold(kind="add")
    tasks = [asyncio.ensure_future(writer.append_at(number, b"x")) for number in range(4)]
    await turns()
    with pytest.raises(Overloaded):
        await writer.append_at(9, b"too far")
    held.release()
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["fence", "close", "abandon"])
async def test_whoever_waits_gets_the_error_that_ended_the_writer(ledgers: Ledgers, how: str) -> None:
    writer = await ledgers.client.create(entry_ids="caller")
    held = ledgers.bookies.hold(kind="add", entry_id=1, recovery=False)
    await writer.append_at(0, b"0")
    tasks = [asyncio.ensure_future(writer.append_at(1, b"1"))]
    if how != "close":
        tasks.append(asyncio.ensure_future(writer.append_at(3, b"early")))
    await turns()
    expected: type[Exception]
    if how == "fence":
        await ledgers.client.open(writer.ledger_id, recover=True)
        held.release()
        expected = LedgerFenced
    elif how == "close":
        assert await writer.close() == 0
        expected = LedgerClosed
    else:
        await ledgers.client.close()
        expected = ClosedError
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in results] == [expected] * len(tasks)
    with pytest.raises(expected):
        await writer.append_at(2, b"late")
    if how == "close":
        assert (await ledgers.metadata(writer.ledger_id)).state is LedgerState.CLOSED
