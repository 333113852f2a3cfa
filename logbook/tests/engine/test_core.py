"""The engine between log and connections, as a whole."""

from __future__ import annotations

import asyncio
from typing import Any

from boki_common import ids
from boki_common.engine.engine_waits import waits_of
from boki_common.ids import Position
from boki_logbook.engine_status import status_of
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import (
    RecordingSource,
    RunSpec,
    append,
    committed,
    data_of,
    plain_records,
    query,
    read,
    same_state,
)

ALICE = bytes(15) + b"a"
BOB = bytes(15) + b"b"


async def test_ledgers_of_ended_terms_are_closed_at_what_is_ordered(cluster: Any, core: Any) -> None:
    ledger = core.logs[0].appender.shard.writer
    await committed(core, RunSpec(1, ALICE, 1, plain_records("a")))
    lost = await cluster.engine()
    orphan = lost.logs[0].appender.shard.writer
    await committed(lost, RunSpec(1, BOB, 1, plain_records("b")))
    cluster.log.leave(lost)
    await cluster.log.next_term()
    await cluster.until(lambda: ledger.closed_at == 1 and orphan.closed_at == 1)
    assert (orphan.ledger_id, 1) in cluster.ledgers.recovered


async def test_a_ledger_below_its_floor_is_not_closed(cluster: Any, core: Any) -> None:
    lost = await cluster.engine()
    orphan = lost.logs[0].appender.shard.writer
    await committed(lost, RunSpec(1, BOB, 1, plain_records("b")))
    await cluster.until(lambda: core.logs[0].indexer.pending == 0)
    kept = orphan.entries.pop()
    cluster.log.leave(lost)
    await cluster.log.next_term()
    await cluster.until(lambda: cluster.ledgers.refusals > 2)
    assert orphan.closed_at is None
    orphan.entries.append(kept)
    await cluster.until(lambda: orphan.closed_at == 1)


async def test_a_lagging_engine_delays_only_those_who_saw_more(cluster: Any) -> None:
    quick, slow = await cluster.engine(), await cluster.engine()
    (first,) = await committed(quick, RunSpec(1, ALICE, 1, plain_records("first")))
    await cluster.settle()
    before = slow.view_of(1)[0]
    gate = cluster.ledgers.gates[quick.logs[0].appender.shard.writer.ledger_id, 1] = asyncio.Event()
    (second,) = await committed(quick, RunSpec(1, ALICE, 2, plain_records("second")))
    saw_more = quick.view_of(1)[0]
    assert data_of(await read(quick, query(), saw_more)) == [b"first", b"second"], "the others go on"
    waiting = asyncio.ensure_future(read(slow, query(), saw_more))
    own = asyncio.ensure_future(committed(slow, RunSpec(2, BOB, 1, plain_records("own"))))
    await cluster.settle()
    for token in (None, before):
        reply = await read(slow, query(), token)
        assert (data_of(reply), reply.position) == ([b"first"], first), "who saw no more is not delayed"
    (third,) = await committed(quick, RunSpec(1, ALICE, 3, plain_records("third")))
    assert third > second and not waiting.done() and not own.done()
    gate.set()
    assert data_of(await waiting)[:2] == [b"first", b"second"]
    await own


async def test_compressed_entries_read_the_same(cluster: Any) -> None:
    settings = EngineSettings(replicas=1, acks=1, compress=True, cache_bytes=0)
    core = await cluster.engine(settings=settings)
    text = "a text that repeats itself " * 400
    await committed(core, RunSpec(1, ALICE, 1, plain_records(text)), RunSpec(2, ALICE, 1, plain_records(text)))
    assert data_of(await read(core, query())) == [text.encode()]
    assert sum(map(len, core.logs[0].appender.shard.writer.entries)) < 3_000


async def test_status_is_json_and_complete(core: Any) -> None:
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x", tags=(5,))), RunSpec(2, BOB, 1, plain_records("y")))
    status = status_of(core)
    assert (status["term"], status["ready"], status["lag_entries"]) == (1, True, 0)
    assert (status["books"], status["writers"], status["records"]) == (2, 2, 2)
    assert status["index"]["rows"] == 3
    assert status["seqnum"] == ids.seqnum(1, 1)
    assert status["shard"]["cut_entries"] == 1


async def test_the_status_says_what_pending_operations_wait_for(cluster: Any, core: Any) -> None:
    source = RecordingSource()

    def waits() -> list[str]:
        return [wait.message for wait in waits_of("e", status_of(core))]

    assert waits() == []
    cluster.ledgers.hold_acks = True
    append(core, source, RunSpec(1, ALICE, 1, plain_records("a")))
    await cluster.settle()
    (said,) = waits()
    assert said.startswith("e (term 1) waits for bookies to acknowledge entries of ledger 0, the oldest sent")
    cluster.log.cut_by_itself = False
    core.logs[0].appender.shard.writer.ack()
    assert waits() == ["e (term 1) has reported what is acknowledged; the sequencer has not ordered it yet"]
    reading = asyncio.ensure_future(read(core, query(), {0: Position(1, 99)}))
    await asyncio.sleep(0)
    assert waits()[1:] == ["e has reads that wait for log 0 to be indexed up to term 1 entry 99"]
    reading.cancel()
    await asyncio.wait([reading])
    cluster.log.disconnect(core)
    assert [said.partition(" since")[0] for said in waits()] == ["e (term 1) is connected to no sequencer"]
    await cluster.log.end_term()
    append(core, source, RunSpec(1, ALICE, 2, plain_records("b")))
    await cluster.settle()
    assert waits()[0].startswith("e (term 1) waits for the next term: the last one is over")
    assert "; 2 batches of appends wait, the oldest for" in waits()[0], "the one that was not cut, and the new one"


async def test_the_status_says_which_entries_cannot_be_read(cluster: Any) -> None:
    core, other = await cluster.engine(), await cluster.engine()
    ledger_id = core.logs[0].appender.shard.writer.ledger_id
    cluster.ledgers.missing[ledger_id, 0] = None
    await committed(core, RunSpec(1, ALICE, 1, plain_records("a")))
    await cluster.until(lambda: other.logs[0].indexer.unreadable)
    said = [wait.message for wait in waits_of("e", status_of(other))]
    assert said[0] == (
        f"e (term 1) cannot read entries 0 to 0 of ledger {ledger_id}, which are ordered: ledger {ledger_id} has no entry 0"
    )
    cluster.ledgers.missing.clear()
    await cluster.until(lambda: not other.pending)
    assert waits_of("e", status_of(other)) == []


async def test_ledgers_of_a_term_that_is_applied_are_not_kept_open(cluster: Any) -> None:
    """A reader keeps what it read ahead: one a term, for ever, would be a leak."""
    core, other = await cluster.engine(), await cluster.engine()
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x")))
    await cluster.until(lambda: same_state(core, other))
    assert [reader.closed for reader in cluster.ledgers.readers] == [False]
    await cluster.log.next_term()
    await cluster.until(lambda: cluster.ledgers.readers[0].closed)


async def test_readers_of_ledgers_are_few_and_closed(cluster: Any) -> None:
    core, other = await cluster.engine(), await cluster.engine()
    for at in range(5):
        await committed(core, RunSpec(1, ALICE, 1 + at, plain_records("x")))
        await cluster.log.next_term()
        await cluster.until(lambda: core.logs[0].appender.shard is not None)
    await cluster.until(lambda: same_state(core, other))
    await other.close()
    await cluster.until(lambda: core.sealer.waiting == 0)
    assert all(reader.closed for reader in cluster.ledgers.readers)
