"""Ranges by batch reads: fewer requests, and never another answer than single reads give."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import DigestMismatch, EntryUnknown, NoSuchEntry
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import QUICK, Ledgers, turns
from boki_ledger.write.writer import LedgerWriter

COUNT = 40
WANTED = [b"payload %d" % number for number in range(COUNT)]


async def opened(ledgers: Ledgers, **settings: float) -> LedgerReader:
    client = await ledgers.other_client(replace(QUICK, **settings))  # type: ignore[arg-type] # counts and seconds alike
    reader = await client.open(0, recover=False)
    ledgers.bookies.seen.clear()
    return reader


async def read(reader: LedgerReader, first: int = 0, last: int = COUNT - 1) -> list[bytes]:
    return [bytes(payload) for payload in await reader.read(first, last)]


def requests(ledgers: Ledgers) -> list[tuple[str, int, int]]:
    """(bookie, first entry, entries) of each read that was asked."""
    return [(one.bookie, one.entry_id, one.entries) for one in ledgers.bookies.seen if not one.answer]


async def test_one_request_reads_many_entries(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers)
    assert await read(reader) == WANTED
    assert requests(ledgers) == [("b1", 0, COUNT)]


async def test_chunks_go_to_all_replicas_and_a_few_at_a_time(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers, batch_read_entries=8, batch_reads_in_flight=2)
    held = ledgers.bookies.hold(kind="read")
    reading = asyncio.ensure_future(read(reader))
    await turns()
    assert requests(ledgers) == [("b1", 0, 8), ("b2", 8, 8)]
    held.release()
    assert await reading == WANTED
    assert requests(ledgers)[2:] == [("b3", 16, 8), ("b1", 24, 8), ("b2", 32, 8)]


async def test_a_batch_that_ends_early_is_continued_where_it_ended(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers)
    monkeypatch.setattr("boki_common.limits.FRAME_BYTES", 1_000)
    assert await read(reader) == WANTED
    asked = requests(ledgers)
    assert len(asked) > 1 and {bookie for bookie, _, _ in asked} == {"b1"}
    assert all(first + entries == COUNT for _, first, entries in asked)


async def test_striped_and_single_entries_are_read_one_by_one(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    await ledgers.change(0, write_quorum=2)
    reader = await opened(ledgers)
    assert await read(reader) == WANTED
    assert await read(reader, 3, 3) == WANTED[3:4]
    assert {entries for _, _, entries in requests(ledgers)} == {1}


async def test_a_range_over_fragments_is_read_from_the_bookies_of_each(ledgers: Ledgers, writer: LedgerWriter) -> None:
    for payload in WANTED[:20]:
        await writer.append(payload)
    ledgers.bookies.register("b2", "b3", "b4")
    ledgers.bookies.crash("b1")
    for payload in WANTED[20:]:
        await writer.append(payload)
    await turns()
    await writer.close()
    (_, _), (second, _) = (await ledgers.metadata(0)).ensembles
    reader = await opened(ledgers, batch_read_entries=16)
    assert await read(reader) == WANTED
    asked = requests(ledgers)
    assert all(entries > 1 for _, _, entries in asked)
    assert (second, 16) in [(first, entries) for _, first, entries in asked]
    assert await read(reader, 5, second) == WANTED[5 : second + 1]


async def test_a_missing_entry_in_one_replica_is_read_from_the_next(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    del ledgers.bookies["b1"].entries[0][7]
    reader = await opened(ledgers)
    assert await read(reader) == WANTED
    assert requests(ledgers) == [("b1", 0, 40), ("b1", 7, 33), ("b2", 7, 33)]


async def test_only_the_damaged_entries_of_a_batch_are_read_again(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    entries = ledgers.bookies["b1"].entries[0]
    entries[12] = entries[13]
    ledgers.bookies.damage("b1", 0, 9)
    reader = await opened(ledgers)
    assert await read(reader) == WANTED
    assert {(first, count) for _, first, count in requests(ledgers)} == {(0, COUNT), (9, 1), (12, 1)}


@pytest.mark.parametrize("status", [V2Status.IO_ERROR, V2Status.UNKNOWN_LEDGER_STATE, V2Status.TOO_MANY_REQUESTS])
async def test_unsure_bookies_are_passed_over(ledgers: Ledgers, status: V2Status) -> None:
    await ledgers.closed(*WANTED)
    ledgers.bookies.answer(status, bookie="b1", kind="read")
    ledgers.bookies.crash("b2")
    reader = await opened(ledgers)
    assert await read(reader) == WANTED


async def test_an_unanswered_batch_is_asked_elsewhere(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers, answer_timeout_s=0.25)
    ledgers.bookies.hold(bookie="b1", kind="read")
    assert await read(reader) == WANTED


async def test_a_bookie_that_knows_no_batches_is_read_singly_from_then_on(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies[bookie].serves_batches = False
    reader = await opened(ledgers)
    assert await read(reader) == WANTED
    assert [entries for _, _, entries in requests(ledgers)] == [COUNT] * 3 + [1] * COUNT
    ledgers.bookies.seen.clear()
    assert await read(reader) == WANTED
    assert [entries for _, _, entries in requests(ledgers)] == [1] * COUNT


async def test_batches_change_no_answer_about_what_is_missing(ledgers: Ledgers) -> None:
    """Denied by all: lost. Denied by two of three and the third away: unknown. Damaged where it exists: damaged."""
    await ledgers.closed(*WANTED)
    body = ledgers.bookies["b3"].entries[0][5]
    for bookie in ("b1", "b2", "b3"):
        del ledgers.bookies[bookie].entries[0][5]
    reader = await opened(ledgers)
    with pytest.raises(NoSuchEntry) as lost:
        await reader.read(0, 9)
    assert lost.value.facts["entry_id"] == 5
    ledgers.bookies["b3"].entries[0][5] = body
    ledgers.bookies.damage("b3", 0, 5)
    with pytest.raises(DigestMismatch):
        await reader.read(0, 9)
    ledgers.bookies.crash("b3")
    with pytest.raises(EntryUnknown):
        await reader.read(0, 9)


async def test_the_range_that_follows_is_asked_for_before_it_is_wanted(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers)
    assert await read(reader, 0, 9) == WANTED[:10]
    assert [entry_id for _, entry_id, _ in requests(ledgers)] == [0]
    assert await read(reader, 10, 19) == WANTED[10:20]
    assert [entry_id for _, entry_id, _ in requests(ledgers)] == [0, 10, 20]
    assert await read(reader, 20, 31) == WANTED[20:32]
    assert requests(ledgers)[3:] == [("b1", 30, 2), ("b1", 32, 8)]
    assert await read(reader, 32, 39) == WANTED[32:]
    assert len(requests(ledgers)) == 5


async def test_nothing_is_asked_ahead_of_who_jumps_or_beyond_the_lac(ledgers: Ledgers, writer: LedgerWriter) -> None:
    for payload in WANTED:
        await writer.append(payload)
    reader = await opened(ledgers)
    reader.confirm(25)
    await read(reader, 0, 9)
    await read(reader, 11, 19)
    await read(reader, 0, 9)
    await read(reader, 10, 19)
    assert requests(ledgers)[-1] == ("b1", 20, 6)
    assert len(requests(ledgers)) == 5
    await reader.close()


@pytest.mark.parametrize("damaged", [20, 25])
async def test_what_was_asked_ahead_is_checked_like_any_other(ledgers: Ledgers, damaged: int) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers)
    ledgers.bookies.damage("b1", 0, damaged)
    for first in range(0, COUNT, 10):
        assert await read(reader, first, first + 9) == WANTED[first : first + 10]


async def test_a_bookie_that_was_asked_ahead_and_does_not_answer_is_passed_over(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers, answer_timeout_s=0.25)
    await read(reader, 0, 9)
    ledgers.bookies.hold(bookie="b1", kind="read")
    assert await read(reader, 10, 19) == WANTED[10:20]
    assert requests(ledgers)[-1] == ("b1", 20, 10)
    assert await read(reader, 20, 29) == WANTED[20:30]
    assert ("b2", 20, 10) in requests(ledgers)
    await reader.close()


async def test_a_reader_that_is_closed_gives_up_what_it_asked_ahead(ledgers: Ledgers) -> None:
    await ledgers.closed(*WANTED)
    reader = await opened(ledgers, answer_timeout_s=0.25)
    await read(reader, 0, 9)
    ledgers.bookies.hold(bookie="b1", kind="read")
    await read(reader, 10, 19)
    ahead = reader._reads._batches._ahead
    assert ahead is not None and not ahead.future.done()
    await reader.close()
    assert ahead.future.cancelled()
