"""Appends that are too old to be ordered: in the queue, in flight to a data ledger, reported in vain, read after a long stop."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from boki_common.errors import Overloaded
from boki_common.testing.machine import ManualClock
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RecordingSource, committed_numbers, numbers, send

AGE_S = 60.0
QUICK = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002, replicas=1, acks=1, append_age_s=AGE_S)


def refused(source: RecordingSource) -> list[type[BaseException]]:
    return [type(error) for _, error in source.refusals]


def close_shard(cluster: Any, core: Any) -> None:
    """The sequencer takes the engine for lost."""
    cluster.log.builder.close(core.logs[0].appender.shard.number)
    cluster.log.cut()


async def in_flight(cluster: Any, clock: ManualClock) -> tuple[Any, RecordingSource]:
    """An engine with an append that no bookie has acknowledged."""
    core, source = await cluster.engine(settings=QUICK, clock=clock), RecordingSource()
    cluster.ledgers.hold_acks = True
    send(core, source, 1)
    await cluster.settle()
    return core, source


async def test_what_comes_back_from_a_shard_after_the_age_is_not_sent_again(cluster: Any) -> None:
    clock = ManualClock(now_s=0.0)
    core, source = await in_flight(cluster, clock)
    clock.now_s = AGE_S
    cluster.ledgers.hold_acks = False
    close_shard(cluster, core)
    await cluster.until(lambda: source.refusals)
    await cluster.until(lambda: core.logs[0].appender.shard is not None)
    await cluster.settle()
    assert refused(source) == [Overloaded]
    assert numbers(cluster.ledgers, core.logs[0].appender.shard.writer.ledger_id) == []
    assert core.appender.queued_bytes == 0


async def test_what_comes_back_in_time_is_sent_again(cluster: Any) -> None:
    clock = ManualClock(now_s=0.0)
    core, source = await in_flight(cluster, clock)
    clock.now_s = AGE_S - 0.1
    cluster.ledgers.hold_acks = False
    close_shard(cluster, core)
    await cluster.until(lambda: committed_numbers(source) == [1])
    assert not source.refusals


async def test_what_waits_behind_a_full_window_is_judged_before_it_is_sent(cluster: Any) -> None:
    clock = ManualClock(now_s=0.0)
    core, source = await in_flight(cluster, clock)
    ledger = core.logs[0].appender.shard.writer
    ledger.fault = Overloaded("the window of the ledger is full")
    clock.now_s = 0.4 * AGE_S
    send(core, source, 2)
    await cluster.settle()
    ledger.fault = None
    clock.now_s = 1.4 * AGE_S
    ledger.ack()
    await cluster.until(lambda: committed_numbers(source) == [1])
    assert refused(source) == [Overloaded]
    assert numbers(cluster.ledgers, ledger.ledger_id) == [[(1, 1)]]


async def test_a_shard_whose_bookies_take_nothing_fails_and_orders_nothing_more(
    cluster: Any,
) -> None:
    clock = ManualClock(now_s=0.0)
    core, source = await in_flight(cluster, clock)
    appender, shard = core.logs[0].appender, core.logs[0].appender.shard
    clock.now_s = AGE_S - 0.1
    appender._check_age()
    assert not shard.failed
    clock.now_s = AGE_S
    appender._check_age()
    await cluster.until(lambda: source.refusals)
    shard.writer.ack()
    await cluster.until(lambda: appender.shard not in (None, shard))
    await cluster.settle()
    assert committed_numbers(source) == []
    assert shard.cut_entries == 0


async def test_what_was_acknowledged_long_ago_is_not_reported_to_a_late_sequencer(cluster: Any) -> None:
    clock = ManualClock(now_s=0.0)
    core, source = await in_flight(cluster, clock)
    appender, shard = core.logs[0].appender, core.logs[0].appender.shard
    cluster.log.disconnect(core)
    shard.writer.ack()
    await cluster.settle()
    assert shard.acked_entries == 1
    clock.now_s = AGE_S
    cluster.log.connect(core)
    await cluster.until(lambda: source.refusals)
    await cluster.until(lambda: appender.shard not in (None, shard))
    assert core.logs[0].link.reports == []
    assert shard.cut_entries == 0
    assert committed_numbers(source) == []


@pytest.mark.parametrize("stopped_s", [0.4 * AGE_S, 0.6 * AGE_S])
async def test_an_engine_that_was_stopped_for_long_takes_nothing_that_waited_for_it(
    cluster: Any, stopped_s: float
) -> None:
    clock, ended = ManualClock(now_s=0.0), list[float]()
    core, source = await cluster.engine(settings=QUICK, clock=clock), RecordingSource()
    core.appender.stopped = lambda: ended.append(clock.now_s)
    clock.now_s = stopped_s
    if stopped_s < AGE_S / 2:
        send(core, source, 1)
        core.appender.check_running()
    else:
        with pytest.raises(Overloaded, match="was stopped for up to 36 s"):
            send(core, source, 1)
        assert ended == [clock.now_s]
        send(core, source, 1)
    await cluster.until(lambda: committed_numbers(source) == [1])


async def test_an_engine_that_was_stopped_notices_when_it_reads_nothing(cluster: Any) -> None:
    clock, ended = ManualClock(now_s=0.0), list[float]()
    settings = dataclasses.replace(QUICK, append_age_s=0.01)
    core = await cluster.engine(settings=settings, clock=clock)
    core.appender.stopped = lambda: ended.append(clock.now_s)
    clock.now_s = 7.0
    await cluster.until(lambda: ended)
    core.appender.check_running()
    assert ended == [7.0]
