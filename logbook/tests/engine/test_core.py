"""The engine between log and connections: rebuild, other engines' entries, waiting reads, faults."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boki_common import ids
from boki_common.engine_protocol import (
    Consistency,
    Direction,
    Query,
    ReadReply,
    Verdict,
    decode_position,
    decode_read_reply,
)
from boki_common.errors import CorruptData, EntryUnknown, InvalidArgument, Overloaded
from boki_common.ids import Position
from boki_common.metrics import Metrics
from boki_common.record_batch import RUN_VOID, join, split_payload
from boki_logbook.core import EngineCore
from boki_logbook.settings import EngineSettings
from boki_logbook.testing import RecordingSource, RecordSpec, RunSpec, ScriptedLedgers, ScriptedLog, make_batch

ALICE = bytes(15) + b"a"
BOB = bytes(15) + b"b"
QUICK = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002, replicas=1, acks=1)


def append(core: EngineCore, source: RecordingSource, *runs: RunSpec) -> None:
    core.appender.append(make_batch(*runs), source, 0)


def records(*data: str, tags: tuple[int, ...] = ()) -> tuple[RecordSpec, ...]:
    return tuple(RecordSpec(tags=tags, data=one.encode()) for one in data)


async def committed(cluster: Any, core: EngineCore, *runs: RunSpec) -> list[int]:
    """Appends and waits; returns the seqnums."""
    source = RecordingSource()
    append(core, source, *runs)
    await cluster.until(lambda: sum(row.count for row in source.rows) == sum(len(run.records) for run in runs))
    return [row.first_seqnum + at for row in source.rows for at in range(row.count)]


def query(
    tag: int = 0,
    *,
    start: int = 0,
    stop: int = 2**63,
    direction: Direction = Direction.NEXT,
    book: int = 1,
    max_records: int = 100,
    max_bytes: int = 100_000,
    wait_ms: int = 0,
    consistency: Consistency = Consistency.SESSION,
) -> Query:
    return Query(book, tag, start, stop, max_records, max_bytes, wait_ms, direction, consistency)


async def read(core: EngineCore, asked: Query, token: dict[int, Position] | None = None) -> ReadReply:
    reply = core.reader.answer_now(token or {}, asked)
    if reply is None:
        reply = await core.reader.answer(token or {}, asked)
    return decode_read_reply(memoryview(b"".join(reply)))


def data_of(reply: ReadReply) -> list[bytes]:
    found, start = [], 0
    for length in reply.records.payload_lengths.tolist():
        found.append(bytes(split_payload(reply.records.payloads[start : start + length])[1]) if length else b"")
        start += length
    return found


def same_state(one: EngineCore, other: EngineCore) -> bool:
    """DESIGN §11.7: equal rows, verdicts, losers, writers, places at one position."""
    a, b = one.indexer, other.indexer
    return (
        a.positions == b.positions
        and a.covered == b.covered
        and a.index.streams() == b.index.streams()
        and a.verdicts.state() == b.verdicts.state()
        and {term: places.losers() for term, places in a.places.terms.items()}
        == {term: places.losers() for term, places in b.places.terms.items()}
        and all(
            places.locate(pos) == b.places.terms[term].locate(pos)
            for term, places in a.places.terms.items()
            for pos in range(places.end_pos)
        )
    )


# -- read your writes


async def test_an_answered_append_can_be_read(cluster: Any) -> None:
    core = await cluster.engine()
    seqnums = await committed(cluster, core, RunSpec(1, ALICE, 1, records("x", "y", tags=(5,))))
    reply = await read(core, query(5))
    assert reply.records.seqnums.tolist() == seqnums
    assert data_of(reply) == [b"x", b"y"]
    assert reply.records.times_ms.tolist() == [cluster.log.time_ms] * 2
    assert reply.position == seqnums[-1]
    assert reply.token == core.indexer.positions
    assert not reply.more


async def test_answers_carry_the_position_that_was_passed(cluster: Any) -> None:
    core, source = await cluster.engine(), RecordingSource()
    append(core, source, RunSpec(1, ALICE, 1, records("x", "y")))
    await cluster.until(lambda: source.rows)
    assert source.tokens == [core.indexer.positions]
    assert source.rows[0].position == core.indexer.covered[0]


async def test_a_resent_append_is_applied_once(cluster: Any) -> None:
    core, first, again = await cluster.engine(), RecordingSource(), RecordingSource()
    append(core, first, RunSpec(1, ALICE, 1, records("x", "y")))
    append(core, again, RunSpec(1, ALICE, 1, records("x", "y")))
    await cluster.until(lambda: again.rows)
    assert [row[:4] for row in first.rows] == [row[:4] for row in again.rows]
    assert len((await read(core, query())).records.seqnums) == 2


async def test_conflicts_gaps_and_voids_are_answered(cluster: Any) -> None:
    core, source = await cluster.engine(), RecordingSource()
    (seqnum,) = await committed(cluster, core, RunSpec(1, BOB, 1, records("x", tags=(5,))))
    append(
        core,
        source,
        RunSpec(1, ALICE, 1, (RecordSpec(expect=((5, 0),)),)),
        RunSpec(1, ALICE, 3, records("later")),
        RunSpec(1, ALICE, 2, records(""), 1, RUN_VOID),
    )
    await cluster.until(lambda: len(source.rows) == 3)
    assert [(row.first, row.verdict) for row in source.rows] == [
        (1, Verdict.CONFLICT),
        (3, Verdict.GAP),
        (2, Verdict.NEVER),
    ]
    assert source.rows[0].actual == ((5, seqnum),)
    assert source.rows[1].first_seqnum == 1
    assert core.indexer.places.terms[1].losers() == [(1, 4)]


# -- other engines, rebuild


async def test_entries_of_other_engines_are_fetched(cluster: Any) -> None:
    one, two = await cluster.engine(), await cluster.engine()
    mine = await committed(cluster, one, RunSpec(1, ALICE, 1, records("a1", "a2")))
    theirs = await committed(cluster, two, RunSpec(1, BOB, 1, records("b1")))
    for core in (one, two):
        await cluster.until(lambda core=core: core.indexer.pending == 0)
        assert (await read(core, query())).records.seqnums.tolist() == [*mine, *theirs]
        assert data_of(await read(core, query())) == [b"a1", b"a2", b"b1"]
    assert same_state(one, two)


async def test_headers_that_arrive_out_of_order_are_applied_in_order(cluster: Any) -> None:
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger = writer.appender.shard.writer
    gate = cluster.ledgers.gates[ledger.ledger_id, 0] = asyncio.Event()
    await committed(cluster, writer, RunSpec(1, ALICE, 1, records("first")))
    await committed(cluster, writer, RunSpec(1, ALICE, 2, records("second")))
    source = RecordingSource()
    append(reader, source, RunSpec(1, BOB, 1, records("own")))
    await cluster.settle()
    assert len(reader.indexer.index) == 0
    assert not source.rows
    assert reader.indexer.pending > 0
    gate.set()
    await cluster.until(lambda: source.rows)
    assert data_of(await read(reader, query())) == [b"first", b"second", b"own"]
    assert same_state(writer, reader)


async def test_an_entry_that_is_not_found_yet_is_looked_for_again(cluster: Any) -> None:
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger_id = writer.appender.shard.writer.ledger_id
    cluster.ledgers.missing[ledger_id, 0] = None
    await committed(cluster, writer, RunSpec(1, ALICE, 1, records("x")))
    await asyncio.sleep(0.01)
    assert len(reader.indexer.index) == 0
    del cluster.ledgers.missing[ledger_id, 0]
    await cluster.until(lambda: same_state(writer, reader))


async def test_a_restarted_engine_rebuilds_the_same(cluster: Any) -> None:
    core = await cluster.engine()
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("a", "b", tags=(5,))))
    await cluster.log.next_term()
    await committed(cluster, core, RunSpec(1, ALICE, 2, records("b", "c")), RunSpec(2, BOB, 1, records("d", tags=(6,))))
    fresh = await cluster.engine()
    await cluster.until(lambda: fresh.indexer.ready and core.indexer.pending == fresh.indexer.pending == 0)
    assert same_state(core, fresh)
    assert data_of(await read(fresh, query())) == [b"a", b"b", b"c"]


RUN = st.tuples(
    st.integers(1, 2),
    st.sampled_from([ALICE, BOB]),
    st.integers(1, 6),
    st.lists(
        st.tuples(st.lists(st.integers(1, 3), max_size=2), st.sampled_from([(), (), ((1, 0),), ((2, 1 << 36),)])),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([0, 0, 0, RUN_VOID]),
).map(
    lambda drawn: RunSpec(
        drawn[0],
        drawn[1],
        drawn[2],
        tuple(RecordSpec(tuple(tags), b"d", expect if not drawn[4] else ()) for tags, expect in drawn[3]),
        1,
        drawn[4],
    )
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1), st.lists(RUN, min_size=1, max_size=3), st.booleans()), max_size=12))
async def test_live_and_rebuilt_indexes_are_equal(steps: list[tuple[int, list[RunSpec], bool]]) -> None:
    """DESIGN §11.7: two engines that append, and one that only rebuilds, know the same at one position."""
    ledgers, log = ScriptedLedgers(), ScriptedLog()
    await log.begin_term()
    cores = [
        EngineCore(ledgers=ledgers, incarnation=str(at) * 32, settings=QUICK, metrics=Metrics()) for at in range(3)
    ]
    try:
        for core in cores[:2]:
            await log.join(core)
        source, sent = RecordingSource(), 0
        for at, runs, ends_term in steps:
            append(cores[at], source, *runs)
            sent += sum(len(run.records) for run in runs)
            await asyncio.sleep(0)
            if ends_term:
                await log.next_term()
        async with asyncio.timeout(10):
            while sum(row.count for row in source.rows) != sent or cores[0].indexer.pending or cores[1].indexer.pending:
                await asyncio.sleep(0)
        await log.join(cores[2], live=False)
        async with asyncio.timeout(10):
            while cores[2].indexer.pending:
                await asyncio.sleep(0)
        assert same_state(cores[0], cores[1])
        assert same_state(cores[0], cores[2])
    finally:
        for core in cores:
            await core.close()


async def test_ledgers_of_ended_terms_are_closed_at_what_is_ordered(cluster: Any) -> None:
    core = await cluster.engine()
    ledger = core.appender.shard.writer
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("a")))
    lost = await cluster.engine()
    orphan = lost.appender.shard.writer
    await committed(cluster, lost, RunSpec(1, BOB, 1, records("b")))
    cluster.log.leave(lost)
    await cluster.log.next_term()
    await cluster.until(lambda: ledger.closed_at == 1 and orphan.closed_at == 1)
    assert (orphan.ledger_id, 1) in cluster.ledgers.recovered


async def test_a_ledger_below_its_floor_is_not_closed(cluster: Any) -> None:
    core = await cluster.engine()
    lost = await cluster.engine()
    orphan = lost.appender.shard.writer
    await committed(cluster, lost, RunSpec(1, BOB, 1, records("b")))
    await cluster.until(lambda: core.indexer.pending == 0)
    kept = orphan.entries.pop()
    cluster.log.leave(lost)
    await cluster.log.next_term()
    await asyncio.sleep(0.01)
    assert orphan.closed_at is None
    assert core.sealer.waiting <= 1
    orphan.entries.append(kept)
    await cluster.until(lambda: orphan.closed_at == 1)


# -- waiting


async def test_a_blocked_read_wakes_at_the_cut(cluster: Any) -> None:
    core = await cluster.engine()
    waiting = asyncio.ensure_future(read(core, query(5, wait_ms=5_000)))
    await cluster.settle()
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("other tag", tags=(6,))))
    assert not waiting.done()
    assert core.reader.parked == 1
    (seqnum,) = await committed(cluster, core, RunSpec(1, ALICE, 2, records("x", tags=(5,))))
    reply = await waiting
    assert reply.records.seqnums.tolist() == [seqnum]
    assert core.reader.parked == 0


async def test_a_blocked_read_crosses_terms(cluster: Any) -> None:
    core = await cluster.engine()
    (seqnum,) = await committed(cluster, core, RunSpec(1, ALICE, 1, records("x")))
    waiting = asyncio.ensure_future(read(core, query(start=seqnum + 1, wait_ms=5_000)))
    await cluster.log.next_term()
    await cluster.until(lambda: core.appender.shard is not None)
    await committed(cluster, core, RunSpec(1, ALICE, 2, records("y")))
    assert data_of(await waiting) == [b"y"]


async def test_a_blocked_read_ends_with_nothing(cluster: Any) -> None:
    core = await cluster.engine()
    reply = await read(core, query(5, wait_ms=2))
    assert len(reply.records.seqnums) == 0
    assert not reply.more


async def test_records_beyond_the_stop_do_not_wake_a_read_for_good(cluster: Any) -> None:
    core = await cluster.engine()
    waiting = asyncio.ensure_future(read(core, query(start=5, stop=6, wait_ms=20)))
    await cluster.settle()
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("x")))
    assert data_of(await waiting) == []


async def test_a_session_waits_for_its_position(cluster: Any) -> None:
    core = await cluster.engine()
    term, entry = core.indexer.positions[0]
    token = {0: Position(term, entry + 1)}
    waiting = asyncio.ensure_future(read(core, query(), token))
    await cluster.settle()
    assert not waiting.done()
    assert len((await read(core, query(consistency=Consistency.ANY), token)).records.seqnums) == 0
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("x")))
    assert data_of(await waiting) == [b"x"]


async def test_a_position_that_never_comes_is_overloaded(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(position_wait_s=0.01, replicas=1, acks=1))
    with pytest.raises(Overloaded, match="did not reach"):
        await read(core, query(), {0: Position(99, 0)})
    with pytest.raises(Overloaded):
        await read(core, query(), {7: Position(1, 0)})


async def test_a_fresh_engine_shows_nothing_before_it_has_caught_up(cluster: Any) -> None:
    core = await cluster.engine()
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("x")))
    ledger_id = core.appender.shard.writer.ledger_id
    cluster.ledgers.missing[ledger_id, 0] = None
    fresh = await cluster.engine()
    waiting = asyncio.ensure_future(read(fresh, query()))
    await asyncio.sleep(0.01)
    assert not fresh.indexer.ready
    assert not waiting.done()
    del cluster.ledgers.missing[ledger_id, 0]
    assert data_of(await waiting) == [b"x"]


async def test_too_many_waiting_reads_are_refused(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(parked_reads=1, replicas=1, acks=1))
    waiting = asyncio.ensure_future(read(core, query(wait_ms=5_000)))
    await cluster.settle()
    with pytest.raises(Overloaded, match="wait in this engine"):
        await read(core, query(wait_ms=5_000))
    waiting.cancel()
    await asyncio.wait([waiting])
    assert core.reader.parked == 0


# -- reading


async def test_reads_are_bounded_and_say_that_more_follows(cluster: Any) -> None:
    core = await cluster.engine()
    seqnums = await committed(cluster, core, RunSpec(1, ALICE, 1, records(*"abcdefgh")))
    reply = await read(core, query(max_records=3))
    assert data_of(reply) == [b"a", b"b", b"c"]
    assert reply.more
    reply = await read(core, query(start=seqnums[3], max_bytes=7))
    assert data_of(reply) == [b"d", b"e"]
    assert reply.more
    reply = await read(core, query(start=seqnums[5], stop=seqnums[7]))
    assert data_of(reply) == [b"f", b"g"]


async def test_reading_backwards(cluster: Any) -> None:
    core = await cluster.engine()
    seqnums = []
    for at in range(4):
        seqnums += await committed(cluster, core, RunSpec(1, ALICE, 1 + 2 * at, records(f"{at}a", f"{at}b")))
    reply = await read(core, query(start=seqnums[6], stop=seqnums[1], direction=Direction.PREV))
    assert data_of(reply) == [b"3a", b"2b", b"2a", b"1b", b"1a", b"0b"]
    reply = await read(core, query(start=2**63 - 1, stop=0, direction=Direction.PREV, max_records=1))
    assert data_of(reply) == [b"3b"]


async def test_what_is_not_cached_comes_from_the_ledgers(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, replicas=1, acks=1))
    for at in range(30):
        await committed(cluster, core, RunSpec(1, ALICE, 1 + at, records(str(at), tags=(1 + at % 2,))))
    cluster.ledgers.reads.clear()
    assert core.reader.answer_now({}, query(1)) is None
    assert data_of(await read(core, query(1))) == [str(at).encode() for at in range(0, 30, 2)]
    assert len(cluster.ledgers.reads) == 15


async def test_one_call_reads_a_bounded_number_of_entries(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, replicas=1, acks=1))
    for at in range(70):
        await committed(cluster, core, RunSpec(1, ALICE, 1 + at, records(str(at))))
    first = await read(core, query())
    assert first.more
    assert len(first.records.seqnums) == 64
    rest = await read(core, query(start=int(first.records.seqnums[-1]) + 1))
    assert data_of(first) + data_of(rest) == [str(at).encode() for at in range(70)]


async def test_an_entry_that_cannot_be_read_now_is_named(cluster: Any) -> None:
    core = await cluster.engine(settings=EngineSettings(cache_bytes=0, replicas=1, acks=1, retry_first_s=0.001))
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("x")))
    ledger_id = core.appender.shard.writer.ledger_id
    cluster.ledgers.unknown[ledger_id, 0] = None
    with pytest.raises(EntryUnknown, match="cannot be read now"):
        await read(core, query())
    cluster.ledgers.unknown.clear()
    assert data_of(await read(core, query())) == [b"x"]


async def test_prev_many_has_one_row_per_query(cluster: Any) -> None:
    core = await cluster.engine()
    a, b = await committed(cluster, core, RunSpec(1, ALICE, 1, (RecordSpec((5,), b"a"), RecordSpec((6,), b"b"))))
    queries = [(5, 2**63 - 1), (7, 2**63 - 1), (6, a), (0, b), (5, a)]
    buffers = await core.reader.prev_many({}, 1, queries)
    reply = decode_read_reply(memoryview(b"".join(buffers)))
    assert reply.records.seqnums.tolist() == [a, 0, 0, b, a]
    assert data_of(reply) == [b"a", b"", b"", b"b", b"a"]


async def test_prev_many_of_too_many_bytes_is_refused(cluster: Any) -> None:
    core = await cluster.engine()
    await committed(cluster, core, RunSpec(1, ALICE, 1, (RecordSpec((5,), bytes(1_000_000)),)))
    with pytest.raises(InvalidArgument, match="ask for fewer"):
        await core.reader.prev_many({}, 1, [(5, 2**63 - 1)] * 5)


async def test_position_covers_what_is_indexed(cluster: Any) -> None:
    core = await cluster.engine()
    (seqnum,) = await committed(cluster, core, RunSpec(1, ALICE, 1, records("x")))
    token, position = decode_position(memoryview(b"".join(await core.reader.position({}))))
    assert (token, position) == (core.indexer.positions, seqnum)


async def test_compressed_entries_read_the_same(cluster: Any) -> None:
    settings = EngineSettings(replicas=1, acks=1, compress=True, cache_bytes=0)
    core = await cluster.engine(settings=settings)
    text = "a text that repeats itself " * 400
    await committed(cluster, core, RunSpec(1, ALICE, 1, records(text)), RunSpec(2, ALICE, 1, records(text)))
    assert data_of(await read(core, query())) == [text.encode()]
    assert sum(map(len, core.appender.shard.writer.entries)) < 3_000


# -- what cannot be right


async def test_an_entry_of_another_place_ends_the_engine(cluster: Any) -> None:
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger = writer.appender.shard.writer
    gate = cluster.ledgers.gates[ledger.ledger_id, 0] = asyncio.Event()
    await committed(cluster, writer, RunSpec(1, ALICE, 1, records("x")))
    batch = make_batch(RunSpec(1, ALICE, 1, records("x")))
    ledger.entries[0] = b"".join(join([batch], term=9, shard=3, first_local_id=0))
    gate.set()
    await cluster.until(reader.failed.done)
    assert isinstance(reader.failed.exception(), CorruptData)


async def test_an_entry_of_another_size_ends_the_engine(cluster: Any) -> None:
    writer, reader = await cluster.engine(), await cluster.engine()
    shard = writer.appender.shard
    gate = cluster.ledgers.gates[shard.writer.ledger_id, 0] = asyncio.Event()
    await committed(cluster, writer, RunSpec(1, ALICE, 1, records("x")))
    batch = make_batch(RunSpec(1, ALICE, 1, records("x", "y")))
    shard.writer.entries[0] = b"".join(join([batch], term=1, shard=shard.number, first_local_id=0))
    gate.set()
    await cluster.until(reader.failed.done)
    assert "end at" in str(reader.failed.exception())


async def test_bytes_that_are_no_batch_are_waited_for_and_reported(cluster: Any) -> None:
    """Only an ordered LOST command may skip what is ordered."""
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger = writer.appender.shard.writer
    gate = cluster.ledgers.gates[ledger.ledger_id, 0] = asyncio.Event()
    await committed(cluster, writer, RunSpec(1, ALICE, 1, records("x")))
    good, ledger.entries[0] = ledger.entries[0], b"no batch at all"
    gate.set()
    await asyncio.sleep(0.01)
    assert reader.indexer.pending == 1
    ledger.entries[0] = good
    await cluster.until(lambda: same_state(writer, reader))


async def test_status_is_plain_and_complete(cluster: Any) -> None:
    core = await cluster.engine()
    await committed(cluster, core, RunSpec(1, ALICE, 1, records("x", tags=(5,))), RunSpec(2, BOB, 1, records("y")))
    status = core.status()
    assert (status["term"], status["ready"], status["lag_entries"]) == (1, True, 0)
    assert (status["books"], status["writers"], status["records"]) == (2, 2, 2)
    assert status["index"]["rows"] == 3
    assert status["seqnum"] == ids.seqnum(1, 1)
    assert status["shard"]["cut_entries"] == 1


async def test_readers_of_ledgers_are_few_and_closed(cluster: Any) -> None:
    core, other = await cluster.engine(), await cluster.engine()
    for at in range(5):
        await committed(cluster, core, RunSpec(1, ALICE, 1 + at, records("x")))
        await cluster.log.next_term()
        await cluster.until(lambda: core.appender.shard is not None)
    await cluster.until(lambda: same_state(core, other))
    await other.close()
    await cluster.until(lambda: core.sealer.waiting == 0)
    assert all(reader.closed for reader in cluster.ledgers.readers)
