"""Reading: only what is acknowledged, only what is undamaged, from whichever replica has it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import (
    ClosedError,
    DigestMismatch,
    EntryUnknown,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
)
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import QUICK, Ledgers, ensemble, submit, turns, until
from boki_ledger.write.writer import LedgerWriter


async def closed_ledger(ledgers: Ledgers, count: int) -> LedgerReader:
    ledger_id = await ledgers.closed(*(b"payload %d" % number for number in range(count)))
    return await ledgers.client.open(ledger_id, recover=False)


def text(payloads: list[memoryview]) -> list[str]:
    return [bytes(payload).decode() for payload in payloads]


async def test_ranges_of_a_closed_ledger(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 5)
    assert reader.closed and reader.last_entry == 4
    assert text(await reader.read(1, 3)) == ["payload 1", "payload 2", "payload 3"]
    assert await reader.read_lac() == 4
    with pytest.raises(InvalidArgument):
        await reader.read(3, 2)
    with pytest.raises(NoSuchEntry, match="ends at entry 4"):
        await reader.read(4, 5)


async def test_ranges_larger_than_the_reads_in_flight(ledgers: Ledgers) -> None:
    await closed_ledger(ledgers, 20)
    client = await ledgers.other_client(replace(QUICK, reads_in_flight=3))
    reader = await client.open(0, recover=False)
    assert text(await reader.read(0, 19)) == [f"payload {number}" for number in range(20)]


async def test_one_replica_is_asked_per_entry_and_load_is_spread(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 6)
    for entry_id in range(6):
        await reader.read(entry_id, entry_id)
    asked = [message.bookie for message in ledgers.bookies.seen if not message.answer]
    assert sorted(asked) == ["b1", "b1", "b2", "b2", "b3", "b3"]


async def test_a_damaged_copy_is_passed_over(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 3)
    ledgers.bookies.damage("b1", 0, 0)
    ledgers.bookies.damage("b2", 0, 1)
    ledgers.bookies.damage("b3", 0, 1)
    assert text(await reader.read(0, 2)) == ["payload 0", "payload 1", "payload 2"]


async def test_another_entrys_body_is_a_damaged_copy(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 2)
    entries = ledgers.bookies["b1"].entries[0]
    entries[0] = entries[1]
    assert text(await reader.read(0, 0)) == ["payload 0"]


async def test_when_all_copies_are_damaged_it_says_so(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 1)
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies.damage(bookie, 0, 0)
    with pytest.raises(DigestMismatch, match="all 3 copies"):
        await reader.read(0, 0)


@pytest.mark.parametrize("status", [V2Status.IO_ERROR, V2Status.UNKNOWN_LEDGER_STATE, V2Status.TOO_MANY_REQUESTS])
async def test_an_unsure_bookie_is_passed_over(ledgers: Ledgers, status: V2Status) -> None:
    reader = await closed_ledger(ledgers, 3)
    ledgers.bookies.answer(status, bookie="b1", kind="read")
    ledgers.bookies.crash("b2")
    assert len(await reader.read(0, 2)) == 3


async def test_negatives_of_some_replicas_prove_nothing(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 1)
    for bookie in ("b1", "b2"):
        ledgers.bookies[bookie].entries[0].pop(0)
    assert text(await reader.read(0, 0)) == ["payload 0"]
    ledgers.bookies.crash("b3")
    with pytest.raises(EntryUnknown) as caught:
        await reader.read(0, 0)
    assert caught.value.retryable


async def test_only_when_every_replica_denies_an_entry_it_does_not_exist(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 1)
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].entries.pop(0)
    with pytest.raises(NoSuchEntry, match="all 3 replicas deny"):
        await reader.read(0, 0)


async def test_a_negative_is_checked_against_newer_metadata(ledgers: Ledgers) -> None:
    """The entry was moved to other bookies, and its old ones collected it."""
    reader = await closed_ledger(ledgers, 1)
    body = ledgers.bookies["b1"].entries[0][0]
    await ledgers.change(0, ensembles=((0, ensemble("b4", "b5", "b1")),))
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].entries.pop(0)
    ledgers.bookies["b4"].entries[0] = {0: body}
    assert text(await reader.read(0, 0)) == ["payload 0"]


async def test_bookies_that_come_back_are_waited_for(ledgers: Ledgers) -> None:
    await closed_ledger(ledgers, 1)
    client = await ledgers.other_client(replace(QUICK, retry_for_s=10.0))
    reader = await client.open(0, recover=False)
    ledgers.bookies.crash("b1", "b2", "b3")
    reading = asyncio.ensure_future(reader.read(0, 0))
    await until(lambda: ledgers.bookies.unreached > 2 * 3)  # no replica answered, twice
    assert not reading.done()
    ledgers.bookies.restart("b2")
    assert text(await reading) == ["payload 0"]


async def test_a_bookie_that_does_not_answer_is_passed_over_after_the_time_out(ledgers: Ledgers) -> None:
    await closed_ledger(ledgers, 1)
    client = await ledgers.other_client(replace(QUICK, answer_timeout_s=0.25))
    reader = await client.open(0, recover=False)
    ledgers.bookies.hold(bookie="b1", kind="read")
    assert text(await reader.read(0, 0)) == ["payload 0"]


# -- open ledgers


async def open_ledger(ledgers: Ledgers, count: int) -> tuple[LedgerWriter, LedgerReader]:
    writer = await ledgers.client.create()
    for number in range(count):
        await writer.append(b"payload %d" % number)
    client = await ledgers.other_client()
    return writer, await client.open(writer.ledger_id, recover=False)


async def test_an_open_ledger_is_read_up_to_its_lac_only(ledgers: Ledgers) -> None:
    _, reader = await open_ledger(ledgers, 3)
    assert not reader.closed and reader.last_entry == -1
    assert text(await reader.read(0, 1)) == ["payload 0", "payload 1"], "LAC 1 rides in entry 2"
    assert reader.last_entry == 1
    with pytest.raises(EntryUnknown, match="not known to be acknowledged"):
        await reader.read(2, 2)
    reader.confirm(2)
    assert text(await reader.read(2, 2)) == ["payload 2"]
    await reader.close()


async def test_a_copy_on_one_bookie_beyond_lac_is_not_read(ledgers: Ledgers) -> None:
    writer, reader = await open_ledger(ledgers, 1)
    for bookie in ("b1", "b2"):
        ledgers.bookies.hold(bookie=bookie, kind="add")
    await submit(writer, b"only on b3")
    assert ledgers.bookies.stored("b3", writer.ledger_id) == [0, 1]
    assert await reader.read_lac() == 0
    with pytest.raises(EntryUnknown):
        await reader.read(1, 1)
    await reader.close()


async def test_the_floor_is_confirmed(ledgers: Ledgers) -> None:
    writer, reader = await open_ledger(ledgers, 3)
    floored = await ledgers.client.open(writer.ledger_id, recover=False, floor=3)
    assert floored.last_entry == 2 and len(await floored.read(0, 2)) == 3
    await reader.close()
    await floored.close()


async def test_the_close_is_noticed(ledgers: Ledgers) -> None:
    writer, reader = await open_ledger(ledgers, 2)
    await writer.close()
    await turns()
    assert reader.closed and reader.last_entry == 1
    assert text(await reader.read(1, 1)) == ["payload 1"]
    await reader.close()


async def test_entries_in_a_new_fragment_are_found(ledgers: Ledgers) -> None:
    writer, reader = await open_ledger(ledgers, 2)
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    for number in range(2, 6):
        await writer.append(b"payload %d" % number)
    ledgers.bookies.crash("b2", "b3")
    reader.confirm(5)
    assert text(await reader.read(4, 5)) == ["payload 4", "payload 5"], "from b4"
    await reader.close()


async def test_lac_needs_one_definite_answer_and_never_goes_back(ledgers: Ledgers) -> None:
    _, reader = await open_ledger(ledgers, 3)
    assert await reader.read_lac() == 1
    ledgers.bookies.crash("b1", "b2")
    assert await reader.read_lac() == 1
    ledgers.bookies["b3"].entries[0].clear()
    assert await reader.read_lac() == 1
    ledgers.bookies.crash("b3")
    with pytest.raises(EntryUnknown, match="try again"):
        await reader.read_lac()
    await reader.close()


async def test_a_deleted_ledger_raises_no_such_ledger(ledgers: Ledgers) -> None:
    writer, reader = await open_ledger(ledgers, 1)
    await ledgers.client.delete(writer.ledger_id)
    await turns()
    with pytest.raises(NoSuchLedger):
        await reader.read(0, 0)
    await reader.close()


async def test_a_closed_reader_refuses(ledgers: Ledgers) -> None:
    _, reader = await open_ledger(ledgers, 1)
    await reader.close()
    await reader.close()
    with pytest.raises(ClosedError):
        await reader.read(0, 0)
    with pytest.raises(ClosedError):
        await reader.read_lac()
