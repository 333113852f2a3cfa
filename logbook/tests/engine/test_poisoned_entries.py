"""Entries whose digest is right and whose content is wrong, at an engine without sockets: it stays up, says which entry it is
that it cannot read, and goes on when that is mended, or given up by a LOST command. Whoever indexes comes to the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.scripted import Scripted

from boki_common.records.record_batch import RecordBatch, join
from boki_logbook.apply.indexer import PENDING_CUTS
from boki_logbook.core import EngineCore
from boki_logbook.state.state import StateDisagrees
from boki_logbook.testing.cluster import (
    RecordingSource,
    RunSpec,
    append,
    committed,
    data_of,
    make_batch,
    plain_records,
    query,
    read,
    same_state,
)
from boki_metalog.entries.metalog_entry import Lost

ALICE = bytes(15) + b"a"
BOB = bytes(15) + b"b"


def entry(first: int, *data: str, term: int = 1, shard: int = 0) -> bytes:
    """An entry of a shard that begins at its record `first`."""
    batch = make_batch(RunSpec(1, ALICE, 1 + first, plain_records(*data, tags=(5,))))
    return b"".join(join([batch], term=term, shard=shard, first_local_id=first))


async def reading(core: EngineCore) -> list[bytes]:
    return data_of(await read(core, query()))


WRONG = {
    "no batch": b"garbage",
    "empty": b"",
    "of another shard": entry(1, "2", shard=3),
    "of another term": entry(1, "2", term=9),
    "as an SDK sends it": entry(1, "2", term=0, shard=0),
    "with too many records": entry(1, "2", "3"),
    "begins later": entry(2, "2"),
    "begins earlier": entry(0, "2"),
    "without records": b"".join(make_batch().at(1, 0, 1)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_an_entry_that_is_not_what_its_cut_means_is_waited_for_and_given_up(cluster: Any, wrong: bytes) -> None:
    """Its engine never knew: it has what it wanted to write in its memory. So it begins anew, as the others do."""
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger = writer.logs[0].appender.shard.writer
    gate = cluster.ledgers.gates[ledger.ledger_id, 1] = asyncio.Event()
    for number in (1, 2):
        await committed(writer, RunSpec(1, ALICE, number, plain_records(str(number))))
    ledger.entries[1] = wrong
    gate.set()
    await cluster.until(lambda: reader.logs[0].indexer.unreadable)
    assert [(one["ledger_id"], one["first"], one["last"]) for one in reader.logs[0].indexer.unreadable] == [
        (ledger.ledger_id, 1, 1)
    ]
    await cluster.until(lambda: reader.frontier.positions[0].entry + 1 == len(cluster.log.history[1]))
    cluster.log.leave(writer)
    await cluster.log.link(reader).order(Lost(1, 0, 1, 2, b"{}"))
    await cluster.until(lambda: not reader.pending)
    (seqnum,) = await committed(reader, RunSpec(1, BOB, 1, plain_records("behind it")))
    assert await reading(reader) == [b"1", b"behind it"]
    late = await cluster.engine()
    await cluster.until(lambda: same_state(reader, late))
    assert not reader.failed.done() and not late.failed.done()
    assert [(gap.first, gap.last) for gap in (await read(late, query())).gaps] == [(seqnum - 1, seqnum - 1)]


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_what_is_carried_and_not_what_its_cut_means_is_waited_for_and_given_up(
    cluster: Any, wrong: bytes
) -> None:
    reader = await cluster.engine()
    ledger = await cluster.ledgers.create()
    link, hostile = cluster.log.link(reader), "ee" * 16
    shard = await link.open_shard(hostile, ledger.ledger_id)
    ledger.submit(entry(0, "1", shard=shard))
    link.report(shard, 1, 1)
    await cluster.until(lambda: not reader.pending and reader.state.records == 1)
    cluster.log.builder.carry(shard, 2, 2, wrong or b"\0")
    cluster.log.cut()
    await cluster.until(lambda: reader.logs[0].indexer.unreadable)
    assert reader.cache.get(ledger.ledger_id, 1) is None, "nobody reads it there"
    await link.order(Lost(1, shard, 1, 2, b"{}"))
    await cluster.until(lambda: not reader.pending)
    await committed(reader, RunSpec(1, BOB, 1, plain_records("behind it")))
    assert await reading(reader) == [b"1", b"behind it"]
    late = await cluster.engine()
    await cluster.until(lambda: same_state(reader, late))


async def test_what_is_carried_badly_and_written_well_is_taken_from_its_data_ledger(cluster: Any) -> None:
    reader = await cluster.engine()
    ledger = await cluster.ledgers.create()
    link = cluster.log.link(reader)
    shard = await link.open_shard("ee" * 16, ledger.ledger_id)
    ledger.submit(entry(0, "1", shard=shard))
    ledger.submit(entry(1, "2", shard=shard))
    link.report(shard, 1, 1)
    cluster.log.cut()
    cluster.log.builder.carry(shard, 2, 2, entry(1, "other", shard=9))
    cluster.log.cut()
    await cluster.until(lambda: reader.state.records == 2)
    assert await reading(reader) == [b"1", b"2"]


async def test_a_pushed_header_that_is_of_another_entry_is_read_from_bookies_instead(cluster: Any) -> None:
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger_id = writer.logs[0].appender.shard.writer.ledger_id
    other = RecordBatch.parse(memoryview(entry(7, "x")))
    reader.parts.pushed.add(ledger_id, 0, RecordBatch.parse(other.header, header_only=True))
    await committed(writer, RunSpec(1, ALICE, 1, plain_records("1")))
    await cluster.until(lambda: same_state(writer, reader))
    assert cluster.ledgers.reads == [(ledger_id, 0, 0)]


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 10_000), bits=st.integers(1, 255))
async def test_an_entry_with_any_byte_changed_is_taken_or_waited_for_by_all_alike(at: int, bits: int) -> None:
    """Digests are right, so nobody sees that it was another one: it is a batch that fits, or it may be given up."""
    world = Scripted()
    log = world.log
    await log.begin_term()
    try:
        reader, ledger = world.core(), await world.ledgers.create()
        await log.join(reader)
        link = log.link(reader)
        shard = await link.open_shard("ee" * 16, ledger.ledger_id)
        good = entry(0, "1", "2", "3", shard=shard)
        at %= len(good)
        ledger.submit(good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :])
        link.report(shard, 3, 1)
        await world.until(lambda: reader.logs[0].indexer.unreadable or reader.state.records == 3)
        if reader.logs[0].indexer.unreadable:
            await link.order(Lost(1, shard, 0, 1, b"{}"))
        await world.until(lambda: not reader.pending)
        late = world.core()
        await log.join(late)
        await world.until(lambda: same_state(reader, late))
        assert not reader.failed.done() and not late.failed.done()
        assert reader.state.records == 3
    finally:
        await world.close()


async def test_what_was_given_up_long_after_it_is_known_to_who_begins_later(cluster: Any) -> None:
    """Who catches up waits until what it has read is applied; not while it waits for an entry itself."""
    writer = await cluster.engine()
    ledger = writer.logs[0].appender.shard.writer
    await committed(writer, RunSpec(1, ALICE, 1, plain_records("1")))
    ledger.entries[0] = b"garbage"
    for _ in range(PENDING_CUTS + 10):
        await cluster.log.link(writer).barrier()
    cluster.log.builder.order(Lost(1, 0, 0, 1, b"{}"))
    cluster.log.leave(writer)
    cluster.log.cut()
    late = await cluster.engine()
    await cluster.until(lambda: not late.pending)
    assert late.state.records == 1 and late.state.places.passed


async def test_an_engine_whose_shard_is_ordered_further_than_it_said_begins_anew(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    """It must not answer for what is not durable, whoever reported it."""
    await committed(core, RunSpec(1, ALICE, 1, plain_records("1")))
    cluster.ledgers.hold_acks = True
    append(core, source, RunSpec(1, ALICE, 2, plain_records("2")))
    await cluster.settle()
    cluster.log.builder.report(0, 2, 2)
    with pytest.raises(StateDisagrees, match="2 entries of shard 0 of term 1 are ordered"):
        cluster.log.cut()
    assert source.rows == []


async def test_an_engine_whose_entries_are_ordered_with_other_counts_begins_anew(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    cluster.ledgers.hold_acks = True
    cluster.log.cut_by_itself = False
    append(core, source, RunSpec(1, ALICE, 1, plain_records("1")))
    await cluster.settle()
    cluster.log.builder.report(0, 2, 1)
    core.logs[0].appender.shard.writer.ack()
    with pytest.raises(StateDisagrees, match="records 0 to below 1 of shard 0 of term 1, as this engine wrote them"):
        cluster.log.cut()
    assert source.rows == []
