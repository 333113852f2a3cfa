"""Entries that the metalog carries, and when their data ledger gets them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import Overloaded
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RecordingSource, committed_numbers, ledger_of, numbers, send

CARRYING = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002, replicas=1, acks=1)
PATIENT = dataclasses.replace(CARRYING, retry_limit_s=3_600.0)
"""Recovery does not take the place of a writer whose entries are not acknowledged yet."""


Carrying = tuple[Any, RecordingSource, Any]


@pytest.fixture
async def carrying(cluster: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Carrying:
    """An engine whose shard has one entry: the next ones may be carried, and no timer writes them."""
    monkeypatch.setattr("boki_logbook.append.appender.WRITE_AFTER_S", 3_600.0)
    settings = getattr(request, "param", CARRYING)
    core, source = await cluster.engine(settings=settings, carrying=True), RecordingSource()
    send(core, source, 1)
    await cluster.until(lambda: committed_numbers(source) == [1])
    ledger = ledger_of(core.logs[0].appender.shard)
    assert len(ledger.entries) == 1, "the first entry of a shard is never carried"
    return core, source, ledger


async def test_a_single_batch_is_ordered_before_its_ledger_has_it(cluster: Any, carrying: Carrying) -> None:
    core, source, ledger = carrying
    for number in (2, 3):
        send(core, source, number)
        await cluster.until(lambda number=number: committed_numbers(source)[-1] == number)
    assert len(ledger.entries) == 1
    assert [end for end, _ in core.logs[0].link.carried] == [2, 3]
    assert [len(entry.carried) for entry in cluster.log.history[1][-2:]] == [1, 1]
    core.logs[0].appender._write_carried()  # a while later
    await cluster.until(lambda: ledger.acked == 3)
    assert [body for _, body in core.logs[0].link.carried] == ledger.entries[1:]
    assert core.logs[0].link.reports == [(1, True)], "what is ordered is not reported"
    await cluster.log.end_term()
    await cluster.until(lambda: ledger.closed_at == 3)


async def test_carried_entries_are_written_a_while_later(
    cluster: Any, carrying: Carrying, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, source, ledger = carrying
    monkeypatch.setattr("boki_logbook.append.appender.WRITE_AFTER_S", 0.001)
    send(core, source, 2)
    await cluster.until(lambda: ledger.acked == 2)
    assert core.logs[0].appender._write_due is None


async def test_what_comes_while_an_entry_is_carried_is_carried_next_if_it_is_small(
    cluster: Any, carrying: Carrying
) -> None:
    core, source, ledger = carrying
    cluster.log.cut_by_itself = False
    for number in range(2, 6):
        send(core, source, number)
        await asyncio.sleep(0)
    assert [end for end, _ in core.logs[0].link.carried] == [2]
    cluster.log.cut()
    assert [end for end, _ in core.logs[0].link.carried] == [2, 3]
    assert core.logs[0].appender.shard.submitted_records == 5
    cluster.log.cut()
    await cluster.until(lambda: committed_numbers(source) == [1, 2, 3, 4, 5])
    assert len(ledger.entries) == 1


async def test_what_is_large_goes_to_the_ledger_behind_what_is_carried(cluster: Any, carrying: Carrying) -> None:
    core, source, ledger = carrying
    cluster.log.cut_by_itself = False
    send(core, source, 2)
    send(core, source, 3, data=bytes(limits.CARRIED_ENTRY_BYTES))
    assert numbers(cluster.ledgers, ledger.ledger_id) == [[(1, 1)], [(2, 1)], [(3, 1)]]
    cluster.log.cut_by_itself = True
    await cluster.until(lambda: committed_numbers(source) == [1, 2, 3])


async def test_a_carried_entry_that_did_not_reach_the_sequencer_is_written_and_reported(
    cluster: Any, carrying: Carrying
) -> None:
    core, source, ledger = carrying
    core.logs[0].link.up = False
    send(core, source, 2)
    cluster.log.disconnect(core)
    assert len(ledger.entries) == 2
    await cluster.settle()
    assert committed_numbers(source) == [1]
    cluster.log.connect(core)
    assert core.logs[0].link.reports == [(2, False)]
    await cluster.until(lambda: committed_numbers(source) == [1, 2])


async def test_a_ledger_is_not_left_further_behind_than_what_is_looked_for(cluster: Any, carrying: Carrying) -> None:
    core, source, ledger = carrying
    cluster.ledgers.hold_acks = True
    for number in range(2, 2 + limits.CARRIED_BEHIND):
        send(core, source, number)
        await cluster.until(lambda number=number: committed_numbers(source)[-1] == number)
    send(core, source, 100)
    assert len(core.logs[0].link.carried) == limits.CARRIED_BEHIND
    assert len(ledger.entries) == limits.CARRIED_BEHIND + 2
    assert core.logs[0].appender.shard.in_flight == 1


async def test_what_was_carried_and_not_cut_in_its_term_is_appended_again(cluster: Any, carrying: Carrying) -> None:
    core, source, ledger = carrying
    cluster.log.cut_by_itself = False
    send(core, source, 2)
    cluster.log.cut()
    send(core, source, 3)
    send(core, source, 4)
    await cluster.log.end_term()
    await cluster.until(lambda: ledger.closed_at is not None)
    assert ledger.closed_at >= 2, "what is beyond the cut is nobody's"
    cluster.log.cut_by_itself = True
    await cluster.log.begin_term()
    await cluster.until(lambda: committed_numbers(source) == [1, 2, 3, 4])


@pytest.mark.parametrize("carrying", [PATIENT], ids=["patient"], indirect=True)
async def test_a_closed_shard_is_completed_before_its_ledger_is_closed(cluster: Any, carrying: Carrying) -> None:
    core, source, ledger = carrying
    cluster.ledgers.hold_acks = True
    send(core, source, 2)
    await cluster.until(lambda: committed_numbers(source) == [1, 2])
    assert len(ledger.entries) == 1
    cluster.log.builder.close(core.logs[0].appender.shard.number)
    cluster.log.cut()
    assert len(ledger.entries) == 2
    await cluster.settle()
    assert ledger.closed_at is None, "it would end before what is ordered"
    ledger.ack()
    await cluster.until(lambda: ledger.closed_at == 2)
    assert not cluster.ledgers.recovered


async def test_a_ledger_that_fails_gets_from_the_metalog_what_was_carried(cluster: Any, carrying: Carrying) -> None:
    core, source, ledger = carrying
    for number in (2, 3):
        send(core, source, number)
        await cluster.until(lambda number=number: committed_numbers(source)[-1] == number)
    ledger.fail()
    assert len(ledger.entries) == 1
    send(core, source, 4)
    await cluster.until(lambda: committed_numbers(source) == [1, 2, 3, 4])
    await cluster.until(lambda: ledger.closed_at == 3)
    assert ledger.entries[1:] == [body for _, body in core.logs[0].link.carried][:2]


async def test_a_ledger_that_fails_with_its_last_entry_carried_waits_for_the_metalog(
    cluster: Any, carrying: Carrying
) -> None:
    """Whether the entry reached the sequencer is unknown: it may be ordered yet, and must not be twice."""
    core, source, ledger = carrying
    shard = core.logs[0].appender.shard
    core.logs[0].link.up = False
    send(core, source, 2)
    ledger.fail()
    await cluster.settle()
    assert core.logs[0].appender.shard is shard
    cluster.log.connect(core)
    await cluster.until(lambda: committed_numbers(source) == [1, 2])
    assert core.logs[0].appender.shard is not shard


async def test_a_busy_sequencer_is_asked_again_to_close_a_shard_whose_end_nobody_knows(
    cluster: Any, carrying: Carrying
) -> None:
    """Without its CLOSE no append of this engine would be ordered until the term ends."""
    core, source, ledger = carrying
    link, shard = core.logs[0].link, core.logs[0].appender.shard
    link.up = False
    send(core, source, 2)  # it does not arrive
    link.up, link.close_faults = True, [Overloaded("many wait"), Overloaded("many wait")]
    ledger.fail()
    await cluster.until(lambda: committed_numbers(source) == [1, 2])
    assert core.logs[0].appender.shard is not shard and link.close_faults == []


async def test_a_sequencer_that_does_not_carry_gets_reports(cluster: Any, carrying: Carrying) -> None:
    core, source, ledger = carrying
    core.logs[0].link.carries = False
    send(core, source, 2)
    assert len(ledger.entries) == 2
    await cluster.until(lambda: committed_numbers(source) == [1, 2])
    assert not core.logs[0].link.carried
