"""Applying the log: answers, other engines' entries, rebuilds, and entries that cannot be right."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.scripted import QUICK, Scripted

from boki_common.engine.answers import Answers
from boki_common.engine.engine_protocol import Token, Verdict
from boki_common.records.numpy_pays import FEW_ROWS
from boki_common.records.record_batch import RUN_END, RUN_VOID
from boki_logbook.testing.cluster import (
    RecordingSource,
    RecordSpec,
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


async def test_an_answered_append_can_be_read(cluster: Any, core: Any) -> None:
    seqnums = await committed(core, RunSpec(1, ALICE, 1, plain_records("x", "y", tags=(5,))))
    reply = await read(core, query(5))
    assert reply.records.seqnums.tolist() == seqnums
    assert data_of(reply) == [b"x", b"y"]
    assert reply.records.times_ms.tolist() == [cluster.log.time_ms] * 2
    assert reply.position == seqnums[-1]
    assert reply.token == core.frontier.positions
    assert not reply.more


async def test_answers_leave_before_the_index_is_busy_with_their_records(cluster: Any, core: Any) -> None:
    """What an answer promises can be read when its callback has ended: nobody can ask before."""
    rows_when_notified: list[int] = []

    class Source(RecordingSource):
        def answered(self, token: Token, answers: Answers) -> None:
            rows_when_notified.append(len(core.state.index))
            super().answered(token, answers)
            asyncio.get_running_loop().call_soon(lambda: rows_when_notified.append(len(core.state.index)))

    source = Source()
    append(core, source, RunSpec(1, ALICE, 1, plain_records("x", "y", tags=(5,))))
    await cluster.until(lambda: len(rows_when_notified) == 2)
    assert rows_when_notified == [0, 4]
    assert data_of(await read(core, query(5))) == [b"x", b"y"]


async def test_answers_carry_the_position_that_was_passed(cluster: Any, core: Any, source: RecordingSource) -> None:
    append(core, source, RunSpec(1, ALICE, 1, plain_records("x", "y")))
    await cluster.until(lambda: source.rows)
    assert source.tokens == [core.frontier.positions]
    assert source.rows[0].position == core.frontier.covered[0]


async def test_a_resent_append_is_applied_once(cluster: Any) -> None:
    core, first, again = await cluster.engine(), RecordingSource(), RecordingSource()
    append(core, first, RunSpec(1, ALICE, 1, plain_records("x", "y")))
    append(core, again, RunSpec(1, ALICE, 1, plain_records("x", "y")))
    await cluster.until(lambda: again.rows)
    assert [row[:4] for row in first.rows] == [row[:4] for row in again.rows]
    assert len((await read(core, query())).records.seqnums) == 2


async def test_conflicts_gaps_and_voids_are_answered(cluster: Any, core: Any, source: RecordingSource) -> None:
    (seqnum,) = await committed(core, RunSpec(1, BOB, 1, plain_records("x", tags=(5,))))
    append(
        core,
        source,
        RunSpec(1, ALICE, 1, (RecordSpec(expect=((5, 0),)),)),
        RunSpec(1, ALICE, 3, plain_records("later")),
        RunSpec(1, ALICE, 2, plain_records(""), 1, RUN_VOID),
    )
    await cluster.until(lambda: len(source.rows) == 3)
    assert [(row.first, row.verdict) for row in source.rows] == [
        (1, Verdict.CONFLICT),
        (3, Verdict.GAP),
        (2, Verdict.NEVER),
    ]
    assert source.rows[0].actual == ((5, seqnum),)
    assert source.rows[1].first_seqnum == 1
    assert core.state.places.terms[1].losers() == [(1, 4)]


async def test_entries_of_other_engines_that_are_carried_are_not_fetched(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do those who start later need them: a data ledger that lacks its last entries keeps nobody from the log."""
    monkeypatch.setattr("boki_logbook.append.appender.WRITE_AFTER_S", 3_600.0)
    quick = dataclasses.replace(QUICK, carried_entry_bytes=4_096)
    one, two = await cluster.engine(settings=quick, carrying=True), await cluster.engine()
    ledger = one.logs[0].appender.shard.writer
    seqnums = [number for at in (1, 2, 3) for number in await committed(one, RunSpec(1, ALICE, at, plain_records("x")))]
    assert len(ledger.entries) == 1
    late = await cluster.engine()
    for core in (two, late):
        await cluster.until(lambda core=core: core.frontier.positions == one.frontier.positions)
        assert same_state(one, core)
        assert (await read(core, query())).records.seqnums.tolist() == seqnums
    assert {entry for ledger_id, entry, _ in cluster.ledgers.reads if ledger_id == ledger.ledger_id} == {0}


async def test_entries_of_other_engines_are_fetched(cluster: Any) -> None:
    one, two = await cluster.engine(), await cluster.engine()
    mine = await committed(one, RunSpec(1, ALICE, 1, plain_records("a1", "a2")))
    theirs = await committed(two, RunSpec(1, BOB, 1, plain_records("b1")))
    for core in (one, two):
        await cluster.until(lambda core=core: core.logs[0].indexer.pending == 0)
        assert (await read(core, query())).records.seqnums.tolist() == [*mine, *theirs]
        assert data_of(await read(core, query())) == [b"a1", b"a2", b"b1"]
    assert same_state(one, two)


async def test_headers_that_arrive_out_of_order_are_applied_in_order(cluster: Any) -> None:
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger = writer.logs[0].appender.shard.writer
    gate = cluster.ledgers.gates[ledger.ledger_id, 0] = asyncio.Event()
    await committed(writer, RunSpec(1, ALICE, 1, plain_records("first")))
    await committed(writer, RunSpec(1, ALICE, 2, plain_records("second")))
    source = RecordingSource()
    append(reader, source, RunSpec(1, BOB, 1, plain_records("own")))
    await cluster.settle()
    assert len(reader.state.index) == 0
    assert not source.rows
    assert reader.logs[0].indexer.pending > 0
    gate.set()
    await cluster.until(lambda: source.rows)
    assert data_of(await read(reader, query())) == [b"first", b"second", b"own"]
    assert same_state(writer, reader)


async def test_an_entry_that_is_not_found_yet_is_looked_for_again(cluster: Any) -> None:
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger_id = writer.logs[0].appender.shard.writer.ledger_id
    cluster.ledgers.missing[ledger_id, 0] = None
    await committed(writer, RunSpec(1, ALICE, 1, plain_records("x")))
    await cluster.until(lambda: len(cluster.ledgers.reads) > 2)
    assert len(reader.state.index) == 0
    del cluster.ledgers.missing[ledger_id, 0]
    await cluster.until(lambda: same_state(writer, reader))


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
    world = Scripted()
    log, cores = world.log, [world.core() for _ in range(3)]
    await log.begin_term()
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
        await world.until(lambda: sum(row.count for row in source.rows) == sent)
        await world.until(lambda: not cores[0].pending and not cores[1].pending)
        await log.join(cores[2], live=False)
        await world.until(lambda: not cores[2].pending)
        assert same_state(cores[0], cores[1])
        assert same_state(cores[0], cores[2])
    finally:
        await world.close()


async def test_bytes_that_are_no_batch_are_waited_for_and_reported(cluster: Any) -> None:
    """Only an ordered LOST command may skip what is ordered."""
    writer, reader = await cluster.engine(), await cluster.engine()
    ledger = writer.logs[0].appender.shard.writer
    gate = cluster.ledgers.gates[ledger.ledger_id, 0] = asyncio.Event()
    await committed(writer, RunSpec(1, ALICE, 1, plain_records("x")))
    good, ledger.entries[0] = ledger.entries[0], b"no batch at all"
    gate.set()
    await cluster.until(lambda: len(cluster.ledgers.reads) > 2)
    assert reader.logs[0].indexer.pending == 1
    ledger.entries[0] = good
    await cluster.until(lambda: same_state(writer, reader))


async def test_the_end_of_a_writer_is_ordered_without_a_record_and_changes_nothing(cluster: Any) -> None:
    one, other = await cluster.engine(), await cluster.engine()
    await committed(one, RunSpec(1, ALICE, 1, plain_records("x")))
    append(one, RecordingSource(), RunSpec(1, ALICE, 2, (), 2, RUN_END))
    (seqnum,) = await committed(one, RunSpec(1, ALICE, 2, plain_records("y")))
    await cluster.until(lambda: same_state(one, other))
    assert other.state.index.newest(1, 0) == seqnum
    assert other.state.verdicts.last(1, ALICE) == 2


@pytest.mark.parametrize("lost", [False, True])
async def test_each_of_many_runs_of_an_entry_is_answered_to_who_sent_it(cluster: Any, lost: bool) -> None:
    """More runs than are answered one by one; `lost`: one of them is a duplicate, so they are after all."""
    core, first = await cluster.engine(), RecordingSource()
    await committed(core, RunSpec(99, ALICE, 1, plain_records("before")))
    cluster.ledgers.hold_acks = True
    core.appender.append(make_batch(RunSpec(1, ALICE, 1, plain_records("alone"))), first, 0)
    sources = [RecordingSource(), RecordingSource()]
    for at, source in enumerate(sources):
        runs = [
            RunSpec(1_000 + 100 * at + book, BOB, 1, plain_records(*"xyz"[: 1 + book % 3])) for book in range(FEW_ROWS)
        ]
        if lost and at:
            runs.insert(5, RunSpec(99, ALICE, 1, plain_records("before")))
        core.appender.append(make_batch(*runs), source, 0)
    await cluster.settle()
    cluster.ledgers.hold_acks = False
    core.logs[0].appender.shard.writer.ack()
    await cluster.until(lambda: all(source.rows for source in sources))
    assert len(core.logs[0].appender.shard.writer.entries) == 3, "both are one entry"
    for at, source in enumerate(sources):
        mine = [row for row in source.rows if row.book != 99 or row.writer != ALICE]
        assert [row.book for row in mine] == [1_000 + 100 * at + book for book in range(FEW_ROWS)]
        assert all(row.writer == BOB and row.verdict == Verdict.COMMITTED for row in mine)
        for row in mine:
            found = await read(core, query(0, book=row.book))
            assert found.records.seqnums.tolist() == list(range(row.first_seqnum, row.first_seqnum + row.count))
            assert row.position == found.position
    assert len(sources[1].rows) == FEW_ROWS + lost


async def test_who_sent_an_entry_that_is_given_up_gets_a_gap_and_sends_it_again(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    await committed(core, RunSpec(1, ALICE, 1, plain_records("before")))
    shard = core.logs[0].appender.shard
    cluster.log.cut_by_itself = False
    append(core, source, RunSpec(1, ALICE, 2, plain_records("x", "y")), RunSpec(2, BOB, 1, plain_records("z")))
    await cluster.settle()
    core.lost(Lost(cluster.log.term, shard.number, 1, 2, b"{}"))
    cluster.log.cut()
    await cluster.until(lambda: source.rows)
    decided = [(row.book, row.writer, row.first, row.count, row.first_seqnum, row.verdict) for row in source.rows]
    assert decided == [(1, ALICE, 2, 2, 1, Verdict.GAP), (2, BOB, 1, 1, 0, Verdict.GAP)]
    cluster.log.cut_by_itself = True
    await committed(core, RunSpec(1, ALICE, 2, plain_records("x", "y")))
    assert data_of(await read(core, query())) == [b"before", b"x", b"y"]
