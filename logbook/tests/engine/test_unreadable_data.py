"""Data that is stored as it was sent, and that nobody can make sense of: ranges go on behind it, and say so."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, GapRow
from boki_common.errors import Lost
from boki_common.records.record_batch import RecordBatch, join
from boki_ledger.testing.model_ledgers import ModelLedger
from boki_logbook.core import EngineCore
from boki_logbook.engine_status import status_of
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RunSpec, committed, data_of, ledger_of, make_batch, plain_records, query, read

ALICE = bytes(15) + b"a"
FORGETFUL = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002, replicas=1, acks=1, cache_bytes=0)


def undecompressable(stored: bytes) -> bytes:
    """The same header, in front of data that is no frame of zstd."""
    batch = RecordBatch.parse(memoryview(stored))
    payload = join([batch], term=1, shard=0, first_local_id=batch.first_local_id, compress=lambda data: b"no frame")
    return b"".join(payload)


def cut_frame(stored: bytes) -> bytes:
    """A frame that declares more than the batch does."""
    batch = RecordBatch.parse(memoryview(stored))
    frame = bytes.fromhex("28b52ffd2400010000") + b"\0" * 8
    return b"".join(join([batch], term=1, shard=0, first_local_id=batch.first_local_id, compress=lambda data: frame))


def of_more_records(stored: bytes) -> bytes:
    batch = make_batch(RunSpec(1, ALICE, 2, plain_records("x", "y", tags=(5,))))
    return b"".join(join([batch], term=1, shard=0, first_local_id=1))


SPOILT = {
    "no frame": undecompressable,
    "another frame": cut_frame,
    "no batch": lambda stored: b"garbage",
    "more records": of_more_records,
}


def writer_of(core: EngineCore) -> ModelLedger:
    shard = core.logs[0].appender.shard
    assert shard is not None
    return ledger_of(shard)


async def with_one_spoilt(cluster: Any, spoil: Any) -> tuple[EngineCore, list[int]]:
    """An engine that has indexed three entries of a record each; nobody can make sense of the data of the second."""
    core = await cluster.engine(settings=dataclasses.replace(FORGETFUL, carried_entry_bytes=0))
    seqnums = [
        (await committed(core, RunSpec(1, ALICE, number, plain_records(str(number), tags=(5,)))))[0]
        for number in (1, 2, 3)
    ]
    entries = writer_of(core).entries
    entries[1] = spoil(entries[1])
    return core, seqnums


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("tag", [0, 5])
async def test_a_range_has_a_gap_where_nobody_can_read_and_goes_on(cluster: Any, spoil: Any, tag: int) -> None:
    core, (_, lost, _) = await with_one_spoilt(cluster, spoil)
    for _ in range(2):
        reply = await read(core, query(tag))
        assert data_of(reply) == [b"1", b"3"]
        assert reply.gaps == (GapRow(lost, lost, GapKind.LOST),)
    (said,) = status_of(core)["unreadable_data"]
    assert (said["ledger_id"], said["entry"]) == (writer_of(core).ledger_id, 1) and said["error"]
    assert not core.failed.done()


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
async def test_a_read_of_one_record_that_nobody_can_read_says_so(cluster: Any, spoil: Any) -> None:
    core, (before, lost, _) = await with_one_spoilt(cluster, spoil)
    reply = await read(core, query(5, start=lost, stop=lost + 1, max_records=1))
    assert (data_of(reply), reply.gaps) == ([], (GapRow(lost, lost, GapKind.LOST),))
    reply = await read(core, query(5, start=lost, stop=0, max_records=1, direction=Direction.PREV))
    assert reply.gaps == (GapRow(lost, lost, GapKind.LOST),)
    reply = await read(core, query(5, start=before, stop=0, max_records=1, direction=Direction.PREV))
    assert (data_of(reply), reply.gaps) == ([b"1"], ())
    with pytest.raises(Lost, match="nobody can read it"):
        await core.reader.prev_many({}, 1, [(5, lost)], Consistency.SESSION)


async def test_a_page_that_is_whole_in_memory_but_for_its_data_has_the_gap_too(cluster: Any) -> None:
    core, (first, lost, _) = await with_one_spoilt(cluster, undecompressable)
    ledger = writer_of(core)
    core.cache.limit_bytes = 1_000_000
    for entry in range(3):
        core.cache.put(ledger.ledger_id, entry, RecordBatch.parse(memoryview(ledger.entries[entry])))
    reply = await read(core, query())
    assert (data_of(reply), reply.gaps) == ([b"1", b"3"], (GapRow(lost, lost, GapKind.LOST),))
    again = await read(core, query())
    assert (data_of(again), again.gaps, again.more) == ([b"1", b"3"], reply.gaps, False), "it is known now"
    reply = await read(core, query(start=first + 1))
    assert (data_of(reply), reply.gaps, reply.more) == ([b"3"], (GapRow(lost, lost, GapKind.LOST),), False)
    reply = await read(core, query(start=lost, max_records=1))
    assert reply.gaps == (GapRow(lost, lost, GapKind.LOST),)


async def test_what_cannot_be_read_now_is_no_gap(cluster: Any) -> None:
    """Its bookies may come back."""
    core, (_, away, _) = await with_one_spoilt(cluster, undecompressable)
    ledger = writer_of(core)
    cluster.ledgers.unknown[ledger.ledger_id, 1] = None
    with pytest.raises(Exception, match="cannot be read now"):
        await core.reader.answer({}, query())
    assert not core.reader.unreadable and away
