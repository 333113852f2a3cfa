"""Shards, batching, back-pressure, and what happens to batches when their shard ends."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.scripted import QUICK, Scripted, until

from boki_common import limits
from boki_common.engine.engine_protocol import Verdict
from boki_common.errors import BokiError, CallTimeout, Overloaded, Unreachable
from boki_logbook.core import EngineCore
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import (
    RecordingSource,
    ScriptedLog,
    batches,
    committed_numbers,
    ledger_of,
    numbers,
    send,
)
from boki_metalog.errors import ShardNotOpen

CARRYING = dataclasses.replace(QUICK, carried_entry_bytes=limits.CARRIED_ENTRY_BYTES)


async def test_what_finds_nothing_in_flight_goes_at_once_more_of_the_turn_as_one(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    ledger = core.logs[0].appender.shard.writer
    send(core, source, 1)
    assert numbers(cluster.ledgers, ledger.ledger_id) == [[(1, 1)]]
    for first in range(2, 6):
        send(core, source, first)
    await cluster.until(lambda: len(source.rows) == 5)
    assert numbers(cluster.ledgers, ledger.ledger_id) == [[(1, 1)], [(first, 1) for first in range(2, 6)]]
    for batch, first_local_id in zip(batches(cluster.ledgers, ledger.ledger_id), (0, 1), strict=True):
        assert (batch.term, batch.shard) == (1, core.logs[0].appender.shard.number)
        assert batch.first_local_id == first_local_id
    assert committed_numbers(source) == [1, 2, 3, 4, 5]


async def test_what_waits_goes_before_what_finds_nothing_in_flight(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    cluster.ledgers.hold_acks = True
    ledger = core.logs[0].appender.shard.writer
    send(core, source, 1)
    send(core, source, 2)
    ledger.ack(1)
    send(core, source, 3)
    assert numbers(cluster.ledgers, ledger.ledger_id) == [[(1, 1)], [(2, 1)]]
    await cluster.settle()
    assert numbers(cluster.ledgers, ledger.ledger_id) == [[(1, 1)], [(2, 1)], [(3, 1)]]
    ledger.ack()
    await cluster.until(lambda: committed_numbers(source) == [1, 2, 3])


async def test_what_a_full_writer_refuses_goes_first_when_it_has_room(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    ledger = core.logs[0].appender.shard.writer
    ledger.fault = Overloaded("the window of the ledger is full")
    send(core, source, 1)
    send(core, source, 2)
    await cluster.settle()
    assert numbers(cluster.ledgers, ledger.ledger_id) == []
    ledger.fault = None
    send(core, source, 3)
    await cluster.until(lambda: committed_numbers(source) == [1, 2, 3])
    assert [run for runs in numbers(cluster.ledgers, ledger.ledger_id) for run in runs] == [(1, 1), (2, 1), (3, 1)]
    assert core.appender.queued_bytes == 0


async def test_an_ack_that_leaves_nothing_in_flight_is_reported_at_once(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    cluster.ledgers.hold_acks = True
    appender = core.logs[0].appender
    for first in (1, 2):
        send(core, source, first)
        await cluster.settle()
    appender.shard.writer.ack(1)
    appender.shard.writer.ack(2)
    assert core.logs[0].link.reports == [(1, False), (2, True)]
    await cluster.until(lambda: committed_numbers(source) == [1, 2])


async def test_four_entries_in_flight_then_everything_that_queued_up(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    cluster.ledgers.hold_acks = True
    ledger = core.logs[0].appender.shard.writer
    for first in range(1, 11):
        send(core, source, first)
        await cluster.settle()
    assert [len(runs) for runs in numbers(cluster.ledgers, ledger.ledger_id)] == [1] * limits.BATCHES_IN_FLIGHT
    ledger.ack(2)
    await cluster.settle()
    assert [len(runs) for runs in numbers(cluster.ledgers, ledger.ledger_id)][4:] == [6]
    assert batches(cluster.ledgers, ledger.ledger_id)[4].first_local_id == 4
    pushes = source.pushes
    ledger.ack()
    await cluster.settle()
    assert committed_numbers(source) == list(range(1, 11))
    assert source.pushes == pushes + 1, "one for all that one turn applied"


async def test_an_entry_is_closed_at_its_size_and_no_batch_is_split(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    cluster.ledgers.hold_acks = True
    send(core, source, 1)
    for at in range(5):
        send(core, source, 2 + 2 * at, count=2, data=bytes(60_000))
    await cluster.settle()
    entries = numbers(cluster.ledgers, core.logs[0].appender.shard.writer.ledger_id)
    assert entries == [[(1, 1)], [(2, 2), (4, 2), (6, 2)], [(8, 2), (10, 2)]]


async def test_a_full_queue_is_overloaded_until_records_are_applied(cluster: Any) -> None:
    size = limits.ENTRY_BYTES + 16 * limits.KIB
    core = await cluster.engine(settings=dataclasses.replace(QUICK, append_queue_bytes=size))
    source = RecordingSource()
    cluster.log.cut_by_itself = False
    for first in range(1, 5):
        send(core, source, first, data=bytes(limits.RECORD_BYTES - 200))
    with pytest.raises(Overloaded):
        send(core, source, 5, data=bytes(limits.RECORD_BYTES - 200))
    await cluster.settle()
    assert core.appender.queued_bytes > limits.ENTRY_BYTES - 1_000
    cluster.log.cut()
    await cluster.until(lambda: len(committed_numbers(source)) == 4)
    assert core.appender.queued_bytes == 0
    send(core, source, 5)


async def test_without_a_sequencer_appends_wait_and_old_ones_are_dropped(cluster: Any) -> None:
    core = await cluster.engine(settings=dataclasses.replace(QUICK, append_age_s=0.02), join=False)
    source = RecordingSource()
    send(core, source, 1)
    await cluster.until(lambda: source.refusals)
    ((request_id, error),) = source.refusals
    assert isinstance(error, Overloaded)
    assert request_id == 0
    assert core.appender.queued_bytes == 0


async def test_appends_that_waited_for_the_sequencer_go_on(cluster: Any) -> None:
    core, source = await cluster.engine(join=False), RecordingSource()
    for first in range(1, 4):
        send(core, source, first)
        await cluster.settle()
    await cluster.log.join(core)
    await cluster.until(lambda: len(committed_numbers(source)) == 3)


async def test_bookies_that_are_away_delay_the_shard(cluster: Any) -> None:
    cluster.ledgers.up = False
    core, source = await cluster.engine(join=False), RecordingSource()
    await cluster.log.join(core)
    send(core, source, 1)
    await cluster.until(lambda: cluster.ledgers.refusals > 2)
    assert core.logs[0].appender.shard is None
    cluster.ledgers.up = True
    await cluster.until(lambda: committed_numbers(source) == [1])


@pytest.mark.parametrize(
    ("faults", "used"),
    [([CallTimeout("no answer"), Unreachable("away")], 0), ([ShardNotOpen("closed")], 1)],
    ids=["no answer: the same ledger", "refused: another ledger"],
)
async def test_a_shard_is_asked_for_until_it_is_open(cluster: Any, faults: list[BokiError], used: int) -> None:
    core = await cluster.engine(join=False)
    await cluster.log.join(core, live=False)
    link = cluster.log.link(core)
    link.open_faults = list(faults)
    core.logs[0].sequencer_up(link)
    await cluster.until(lambda: core.logs[0].appender.shard is not None)
    assert core.logs[0].appender.shard.writer.ledger_id == used
    await cluster.until(lambda: cluster.ledgers[0].closed_at == (0 if used else None))


async def test_a_ledger_offered_with_unknown_outcome_is_of_no_use_in_the_next_term(cluster: Any) -> None:
    core = await cluster.engine(join=False)
    await cluster.log.join(core, live=False)
    link = cluster.log.link(core)
    link.open_faults = [CallTimeout("no answer")] * 1_000
    core.logs[0].sequencer_up(link)
    await cluster.until(lambda: len(link.open_faults) < 999)
    await cluster.log.next_term()
    await cluster.until(lambda: core.logs[0].appender.shard is not None)
    assert core.logs[0].appender.shard.writer.ledger_id == 1


async def test_a_reconnected_sequencer_gets_the_progress_again(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    shard = core.logs[0].appender.shard
    cluster.log.disconnect(core)
    send(core, source, 1, count=3)
    await cluster.until(lambda: shard.acked_entries == 1)
    assert not source.rows
    cluster.log.connect(core)
    await cluster.until(lambda: committed_numbers(source) == [1, 2, 3])
    assert core.logs[0].appender.shard is shard


async def test_what_is_not_cut_at_the_end_of_a_term_is_appended_again_in_order(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    old = core.logs[0].appender.shard.writer
    send(core, source, 1)
    await cluster.until(lambda: committed_numbers(source) == [1])
    cluster.log.cut_by_itself = False
    cluster.ledgers.hold_acks = True
    for first in range(2, 9):
        send(core, source, first)
        await cluster.settle()
    old.ack(3)  # acked and reported, but not cut
    await cluster.settle()
    await cluster.log.end_term()
    cluster.log.cut_by_itself, cluster.ledgers.hold_acks = True, False
    await cluster.log.begin_term()
    await cluster.until(lambda: len(committed_numbers(source)) == 8)
    new = core.logs[0].appender.shard
    assert new.term == 2
    assert [run[0] for runs in numbers(cluster.ledgers, new.writer.ledger_id) for run in runs] == list(range(2, 9))
    assert {row.first_seqnum >> 35 for row in source.rows if row.first > 1} == {2}
    await cluster.until(lambda: old.closed_at is not None)


async def test_a_closed_shard_is_left_and_what_is_not_cut_goes_to_the_next(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    old = core.logs[0].appender.shard
    cluster.ledgers.hold_acks = True
    for first in range(1, 6):
        send(core, source, first)
        await cluster.settle()
    old.writer.ack(2)
    await cluster.settle()
    cluster.log.builder.close(old.number)  # the sequencer takes the engine for lost
    cluster.log.cut()
    old.writer.ack(4)  # too late: it is on its way elsewhere
    assert (old.acked_entries, old.in_flight) == (2, 0)
    cluster.ledgers.hold_acks = False
    await cluster.until(lambda: len(committed_numbers(source)) == 5)
    assert core.logs[0].appender.shard is not old
    entries = numbers(cluster.ledgers, core.logs[0].appender.shard.writer.ledger_id)
    assert [run for runs in entries for run in runs] == [(3, 1), (4, 1), (5, 1)]


async def test_a_failed_ledger_is_left_only_when_all_it_reported_is_cut(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    """core-review F9: else what is appended again could be ordered before its predecessors."""
    old = core.logs[0].appender.shard
    cluster.ledgers.hold_acks = True
    cluster.log.cut_by_itself = False
    for first in range(1, 7):
        send(core, source, first)
        await cluster.settle()
    old.writer.ack(2)
    old.writer.fail()
    await cluster.settle()
    assert core.logs[0].appender.shard is old
    assert old.cut_entries == 0
    cluster.ledgers.hold_acks = False
    await cluster.settle()
    assert len(cluster.ledgers.ledgers) == 2  # the spare was not used yet
    cluster.log.cut_by_itself = True
    cluster.log.cut()
    await cluster.until(lambda: len(committed_numbers(source)) == 6)
    entries = numbers(cluster.ledgers, core.logs[0].appender.shard.writer.ledger_id)
    assert [run for runs in entries for run in runs] == [(3, 1), (4, 1), (5, 1), (6, 1)]
    await cluster.until(lambda: (old.writer.ledger_id, 2) in cluster.ledgers.recovered)


async def test_a_ledger_that_fails_while_the_sequencer_is_away(
    cluster: Any, core: Any, source: RecordingSource
) -> None:
    old = core.logs[0].appender.shard
    cluster.log.disconnect(core)
    send(core, source, 1)
    await cluster.until(lambda: old.acked_entries == 1)
    cluster.ledgers.hold_acks = True
    send(core, source, 2)
    await cluster.settle()
    old.writer.fail()
    cluster.ledgers.hold_acks = False
    send(core, source, 3)
    await cluster.settle()
    assert core.logs[0].appender.shard is old
    cluster.log.connect(core)
    await cluster.until(lambda: len(committed_numbers(source)) == 3)
    assert committed_numbers(source) == [1, 2, 3]


async def test_shards_roll_by_size_in_order(cluster: Any) -> None:
    core = await cluster.engine(settings=dataclasses.replace(QUICK, shard_bytes=3_000))
    source = RecordingSource()
    for first in range(1, 41):
        send(core, source, first, data=bytes(500))
        await asyncio.sleep(0)
    await cluster.until(lambda: len(committed_numbers(source)) == 40)
    assert committed_numbers(source) == list(range(1, 41))
    used = [one for one in cluster.ledgers.ledgers.values() if one.entries]
    assert len(used) > 3
    await cluster.until(lambda: all(one.closed_at is not None for one in used[:-1]))


async def test_the_engine_leaves_politely(cluster: Any, core: Any) -> None:
    appender = core.logs[0].appender
    await cluster.until(lambda: appender._spare.spare is not None)
    shard, spare = appender.shard, appender._spare.spare
    await appender.close()
    assert core.state.places.terms[1].shards[shard.number].closed
    assert spare.ledger_id not in cluster.ledgers.ledgers


# -- any order of acks, cuts, failures, closes and terms


OFTEN = ["entry", "entry", "entry", "ack", "ack", "cut", "cut"]
STEPS = st.lists(
    st.sampled_from([*OFTEN, "send", "turn", "write", "fail", "close", "term", "link"]), min_size=5, max_size=60
)


@pytest.mark.parametrize("engine", [QUICK, CARRYING], ids=["", "carrying"])
@settings(max_examples=150)
@given(STEPS)
async def test_every_number_is_ordered_once_and_in_order(engine: EngineSettings, steps: list[str]) -> None:
    """Whatever fails in between: all numbers end as committed, exactly once, in order, with ascending seqnums. No data ledger is
    closed below what is ordered of it."""
    world = Scripted()
    ledgers, log, core = world.ledgers, world.log, world.core(engine)
    await log.begin_term()
    try:
        await log.join(core)
        await until(lambda: core.logs[0].appender.shard is not None)
        source = RecordingSource()
        ledgers.hold_acks = True
        log.cut_by_itself = False
        sent = await _disturb(core, log, source, steps)
        ledgers.hold_acks = False
        log.cut_by_itself = True
        for ledger in ledgers.ledgers.values():
            ledger.ack()
        log.connect(core)
        log.cut()
        send(core, source, sent + 1)
        await until(lambda: len(committed_numbers(source)) == sent + 1)
        assert sorted(committed_numbers(source)) == list(range(1, sent + 2))
        assert not [row for row in source.rows if row.verdict != Verdict.COMMITTED]
        assert core.state.index.next(1, 0, 0) == source.rows[0].first_seqnum
        assert len(core.state.index.streams()[1, 0]) == sent + 1
        assert core.appender.queued_bytes == 0
        await log.end_term()
        shards = [shard for term in core.state.places.terms.values() for shard in term.shards.values()]
        await until(lambda: all(ledgers[shard.ledger_id].closed_at is not None for shard in shards))
        assert all((ledgers[shard.ledger_id].closed_at or 0) >= shard.entries_end for shard in shards)
        assert not core.failed.done()
    finally:
        await world.close()


async def _disturb(core: EngineCore, log: ScriptedLog, source: RecordingSource, steps: list[str]) -> int:
    sent = 0
    for step in steps:
        shard = core.logs[0].appender.shard
        if step == "send":
            sent += 1
            send(core, source, sent)
        elif step in ("entry", "turn"):
            if step == "entry":
                sent += 1
                send(core, source, sent)
            for _ in range(8):
                await asyncio.sleep(0)
        elif step == "ack" and shard is not None:
            ledger = ledger_of(shard)
            ledger.ack(min(ledger.acked + 1, len(ledger.entries)))
        elif step == "write":
            core.logs[0].appender._write_carried()
        elif step == "cut":
            log.cut()
        elif step == "fail" and shard is not None:
            ledger_of(shard).fail()
        elif step == "close" and shard is not None and shard.term == log.term:
            log.builder.close(shard.number)
            log.cut()
        elif step == "term":
            await log.next_term()
        elif step == "link":
            log.disconnect(core)
            await asyncio.sleep(0)
            log.connect(core)
    return sent
