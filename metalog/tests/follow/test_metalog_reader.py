"""Reading a metalog ledger in batches: sizes, failures, and what must be closed."""

from __future__ import annotations

from typing import Any

import pytest

from boki_common.errors import CorruptData, EntryUnknown
from boki_metalog.follow.metalog_reader import MetalogReader
from boki_metalog.settings import FollowerSettings


async def ledger_of(ledgers: Any, entries: int, size: int = 10) -> int:
    ledgers.hold_acks = True
    writer = await ledgers.create()
    for number in range(entries):
        writer.submit(bytes([number % 256]) * size)
    ledgers.ack(writer.ledger_id)
    return int(writer.ledger_id)


async def read_all(reader: MetalogReader, end: int) -> list[int]:
    """Sizes of the batches."""
    sizes: list[int] = []
    while sum(sizes) < end:
        payloads = await reader.read(sum(sizes))
        assert [payload[0] for payload in payloads] == [(sum(sizes) + n) % 256 for n in range(len(payloads))]
        sizes.append(len(payloads))
    await reader.close()
    return sizes


async def test_small_entries_come_in_growing_batches(model_ledgers: Any) -> None:
    ledger = await ledger_of(model_ledgers, 1_000)
    settings = FollowerSettings(read_entries=300)
    reader = MetalogReader(model_ledgers, ledger, end=1_000, closed_at=None, settings=settings)
    assert await read_all(reader, 1_000) == [64, 128, 256, 300, 252]


async def test_large_entries_come_in_shrinking_batches(model_ledgers: Any) -> None:
    ledger = await ledger_of(model_ledgers, 100, size=100)
    reader = MetalogReader(model_ledgers, ledger, end=100, closed_at=None, settings=FollowerSettings(read_bytes=2_000))
    assert await read_all(reader, 100) == [64, 32, 4]


async def test_what_the_sequencer_says_is_acknowledged_need_not_be_proven(model_ledgers: Any) -> None:
    """The newest entry of an idle metalog: no later entry carries its LAC."""
    ledger = await ledger_of(model_ledgers, 3)
    plain = await model_ledgers.open(ledger, recover=False)
    with pytest.raises(EntryUnknown):
        await plain.read(0, 2)
    reader = MetalogReader(model_ledgers, ledger, end=3, closed_at=None, settings=FollowerSettings())
    assert await read_all(reader, 3) == [3]


async def test_after_a_failure_the_ledger_is_opened_anew(model_ledgers: Any) -> None:
    ledger = await ledger_of(model_ledgers, 3)
    reader = MetalogReader(model_ledgers, ledger, end=3, closed_at=None, settings=FollowerSettings())
    model_ledgers.faults.append(("open", EntryUnknown("bookies are down")))
    with pytest.raises(EntryUnknown):
        await reader.read(0)
    assert await read_all(reader, 3) == [3]
    await reader.close()


@pytest.mark.parametrize(("recover", "end"), [(False, 3), (True, 2), (True, 4)])
async def test_a_sealed_term_ends_where_its_record_says(model_ledgers: Any, recover: bool, end: int) -> None:
    ledger = await ledger_of(model_ledgers, 3)
    await model_ledgers.open(ledger, recover=recover)
    reader = MetalogReader(model_ledgers, ledger, end=end, closed_at=end - 1, settings=FollowerSettings())
    with pytest.raises(CorruptData, match="as its term's record says"):
        await reader.read(0)


async def test_a_closed_ledger(model_ledgers: Any) -> None:
    ledger = await ledger_of(model_ledgers, 3)
    await model_ledgers.open(ledger, recover=True)
    reader = MetalogReader(model_ledgers, ledger, end=3, closed_at=2, settings=FollowerSettings())
    assert await read_all(reader, 3) == [3]
