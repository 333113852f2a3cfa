"""Copies of an append that outlive its writer, and clocks that step: nothing is in the log twice, and no live writer is forgotten.

Whole clusters, played as they were found to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import boki
from boki_common.ids import book_id
from boki_sim import simulated
from boki_sim.clusters.cluster import ENGINE_PORT
from boki_sim.clusters.shape import Shape, draw_shape
from boki_sim.world.randomness import stream

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it

STEP_S = 2 * 3_600
AGE_S = 600.0
"""Session writers are forgotten after ten minutes instead of an hour; nothing else is of another age."""
AWAY_S = 2 * AGE_S + 300
PAYMENT = b"pay 100"


def plain_seeds() -> Iterator[int]:
    """Seeds of clusters with two engines that index all of one log, and clocks that go as time does."""
    for seed in range(1, 4_000):
        shape = draw_shape(stream(seed, "shape"))
        if (shape.clock_rate, shape.engines, shape.logs, shape.index_slots, shape.hasty) == (1.0, 2, 1, (), False):
            yield seed


SEED = next(plain_seeds())


class Played:
    """A cluster that does what a test says; `payments` is what the book has."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.real = cluster._run.cluster
        self.network = self.real.network
        self.me = cluster._run._processes["program"][0].host
        self.engines = self.real.of("engine")

    async def payments(self, client: boki.Client) -> list[bytes]:
        found = client.book("lost").read(consistency="linearizable")
        return [bytes(record.data[: len(PAYMENT)]) async for record in found]

    def forgotten(self) -> bool:
        """Whether every engine that runs has forgotten all writers of the book."""
        states = [engine.core.state for engine in self.real.engines().values()]
        return not any(book == book_id("lost") for state in states for book, _ in state.verdicts.writers)


async def step_while_cut_off(cluster: Any) -> None:
    played = Played(cluster)
    client = await cluster.connect()
    live, lost = client.book("live"), client.book("lost")
    for number in range(3):
        await live.append(b"%d" % number)
    ticket = lost.submit(PAYMENT)
    await asyncio.sleep(0.0001)  # it is on its way; of the answer nothing arrives
    back = [(engine.host, played.me) for engine in played.engines]
    played.network.block(back)

    async def others() -> list[bytes]:
        other = await cluster.connect()
        await other.book("other").append(b"before")
        for node in played.real.of("sequencer"):
            node.clock.skew_ms += STEP_S * 1_000
        for _ in range(9):
            await other.book("other").append(b"tick")
            await asyncio.sleep(15)
        newest = await other.book("other").check_tail()
        assert newest is not None and newest.time_ms > played.engines[0].clock.now_ms() + 3_600_000, (
            "the log's time stepped"
        )
        return await played.payments(other)

    assert await cluster.process("helper").start(others()) == [PAYMENT]
    played.network.unblock(back)
    seqnum = await ticket
    assert await ticket.outcome() == boki.Committed(seqnum)
    assert await played.payments(client) == [PAYMENT]
    assert await live.append(b"3") > seqnum, "its writer is known still"


def test_a_step_of_the_clock_forgets_nobody_who_is_alive_and_applies_nothing_twice() -> None:
    simulated.run(step_while_cut_off, seed=SEED, faults="calm", seconds=1.0)


async def copy_outlives_its_writer(cluster: Any, how: str) -> None:
    played = Played(cluster)
    one, two = played.engines
    client = await boki.connect(f"boki://{one.host}:{ENGINE_PORT},boki://{two.host}:{ENGINE_PORT}")
    await client.book("first").append(b"x" * 5_000)
    cut = [(one.host, bookie.host) for bookie in played.real.of("bookie")]
    if how == "on its way":
        cut = [(played.me, one.host)]
    played.network.block(cut)
    ticket = client.book("lost").submit(PAYMENT + bytes(5_000))
    await asyncio.sleep(0.1)
    assert one.role.core.logs[0].appender.shard.in_flight == (how != "on its way")
    if how == "stopped":
        one.process.pause()
    if how != "on its way":
        played.network.block([(one.host, played.me), (played.me, one.host)])
        played.network.reset(played.me, one.host)
    seqnum = await ticket  # through the other engine

    async def others() -> list[bytes]:
        other = await boki.connect(f"boki://{two.host}:{ENGINE_PORT}")
        for _ in range(int(AWAY_S) // 60):
            await other.book("other").append(b"tick")
            await asyncio.sleep(60)
            if played.forgotten():
                break
        return await played.payments(other)

    assert await cluster.process("helper").start(others()) == [PAYMENT]
    assert two.role.core.state.verdicts.writers.past, "its writer is forgotten for good"
    played.network.unblock(cut)  # what is on its way is judged by the log alone
    if how == "stopped":
        one.process.resume()
    await asyncio.sleep(30)
    assert await played.payments(client) == [PAYMENT]
    record = await client.book("lost").check_tail()
    assert record is not None and record.seqnum == seqnum


@pytest.mark.parametrize("how", ["partition", "stopped", "on its way"])
def test_a_copy_that_comes_after_its_writer_was_forgotten_is_not_applied_again(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def soon(numbers: Any) -> Shape:
        drawn = draw_shape(numbers)
        return replace(drawn, engine=replace(drawn.engine, session_writer_age_s=AGE_S))

    monkeypatch.setattr(simulated, "draw_shape", soon)
    simulated.run(lambda cluster: copy_outlives_its_writer(cluster, how), seed=SEED, faults="calm", seconds=AWAY_S)
