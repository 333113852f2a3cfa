"""Reading a long range: order, bounds, a slow consumer, errors where they belong, one replica for all of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import ClosedError, InvalidArgument, NoSuchEntry
from boki_ledger.read.read_ahead import ReadAhead
from boki_ledger.read.reader import LedgerReader
from boki_ledger.testing.ledgers import QUICK, Ledgers, turns

SETTINGS = replace(QUICK, batch_read_entries=8, read_ahead_entries=64, read_ahead_bytes=1_000)


class Source:
    """Entries of one size; counts what was asked for and not consumed."""

    def __init__(self, size: int, *, broken_at: int = 1 << 60) -> None:
        self.size = size
        self.broken_at = broken_at
        self.asked = 0
        self.open = 0

    async def read(self, first: int, last: int) -> list[memoryview]:
        self.asked += last + 1 - first
        self.open += 1
        try:
            await asyncio.sleep(0)
            if last >= self.broken_at:
                raise NoSuchEntry(f"no entry {self.broken_at}")
            return [memoryview(b"%d" % entry_id + bytes(self.size)) for entry_id in range(first, last + 1)]
        finally:
            self.open -= 1


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 64, 65, 500])
async def test_every_entry_comes_once_and_in_order(count: int) -> None:
    source = Source(10)
    found = [
        (entry_id, int(bytes(payload).rstrip(b"\0")))
        async for entry_id, payload in ReadAhead(source.read, SETTINGS).entries(3, 2 + count)
    ]
    assert found == [(entry_id, entry_id) for entry_id in range(3, 3 + count)]
    assert source.asked == count


@pytest.mark.parametrize(("size", "most"), [(1, 64 + 8), (100, 16), (10_000, 2)])
async def test_what_is_read_ahead_of_a_slow_consumer_is_bounded_in_entries_and_bytes(size: int, most: int) -> None:
    source = Source(size)
    consumed = 0
    ahead: list[int] = []
    async for _ in ReadAhead(source.read, SETTINGS).entries(0, 399):
        await turns(5)
        ahead.append(source.asked - consumed)
        consumed += 1
    assert max(ahead) <= most and consumed == 400
    if size == 1:
        assert max(ahead) > 32, "it does read ahead"


async def test_an_error_comes_after_the_entries_before_it() -> None:
    source = Source(1, broken_at=100)
    found: list[int] = []
    with pytest.raises(NoSuchEntry):
        async for entry_id, _ in ReadAhead(source.read, SETTINGS).entries(0, 399):
            found.append(entry_id)
    assert 92 <= len(found) <= 100 and found == list(range(len(found)))
    assert source.open == 0


async def test_a_consumer_that_leaves_ends_the_reading() -> None:
    source = Source(1)
    entries = ReadAhead(source.read, SETTINGS).entries(0, 399)
    async for entry_id, _ in entries:
        if entry_id == 20:
            break
    await entries.aclose()  # type: ignore[attr-defined]
    asked = source.asked
    await turns()
    assert (source.open, source.asked) == (0, asked) and asked < 200


# -- on bookies


async def closed_ledger(ledgers: Ledgers, count: int) -> LedgerReader:
    client = await ledgers.other_client(replace(SETTINGS, batch_reads_in_flight=2))
    writer = await client.create()
    for number in range(count):
        writer.submit(b"%d" % number)
    await turns(200)
    await writer.close()
    reader = await client.open(writer.ledger_id, recover=False)
    ledgers.bookies.seen.clear()
    return reader


def asked(ledgers: Ledgers) -> list[str]:
    return [message.bookie for message in ledgers.bookies.seen if message.kind == "read" and not message.answer]


async def test_a_range_is_read_from_one_replica(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 300)
    found = [(entry_id, bytes(payload)) async for entry_id, payload in reader.read_range(0, 299)]
    assert found == [(entry_id, b"%d" % entry_id) for entry_id in range(300)]
    assert len(set(asked(ledgers))) == 1


async def test_a_replica_that_fails_is_left(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 300)
    entries = reader.read_range(0, 299)
    kept = ""
    count = 0
    async for _ in entries:
        count += 1
        if count == 100:
            kept = asked(ledgers)[-1]
            ledgers.bookies.answer(V2Status.IO_ERROR, bookie=kept, kind="read")
            ledgers.bookies.seen.clear()
    assert count == 300
    late = asked(ledgers)[12:]
    assert late and kept not in late and len(set(late)) == 1


async def test_ranges_that_cannot_be(ledgers: Ledgers) -> None:
    reader = await closed_ledger(ledgers, 3)
    with pytest.raises(InvalidArgument, match="0 <= first <= last"):
        reader.read_range(2, 1)
    with pytest.raises(NoSuchEntry, match="ends at entry 2"):
        [entry async for entry in reader.read_range(2, 50)]
    await reader.close()
    with pytest.raises(ClosedError):
        [entry async for entry in reader.read_range(0, 2)]
