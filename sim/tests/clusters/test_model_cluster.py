"""A model in the place of a cluster: served over the simulated network, with the weather of its seed. See also `test_hosts`."""

from __future__ import annotations

from typing import Any

import pytest

from boki_sim.clusters.model_cluster import without_roles
from boki_sim.clusters.shape import draw_shape
from boki_sim.simulated import How, run
from boki_sim.world.randomness import stream

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it


def test_nobody_is_there_but_the_weather_is_the_same() -> None:
    drawn = draw_shape(stream(1, "shape"))
    made = without_roles(drawn)
    assert made.bookies == made.engines == made.sequencers == made.controllers == 0
    assert made.weather == drawn.weather
    assert made.clock_rate == 1.0


def test_a_program_talks_to_it_over_the_network() -> None:
    async def program(cluster: Any) -> bytes:
        assert cluster.url.startswith("boki://10.")
        async with await cluster.connect() as one, await cluster.connect() as other:
            seqnum = await one.book("b").append(b"hello", tags=["t"])
            record = await other.book("b").read_at(seqnum, consistency="linearizable")
            return bytes(record.data)

    assert run(program, seed=2, faults="calm", seconds=0.1, model=True) == b"hello"


def test_steady_clusters_have_clocks_that_go_as_time_does() -> None:
    rates = {How().shape(seed).clock_rate for seed in range(30)}
    assert len(rates) > 1
    assert {How(steady=True).shape(seed).clock_rate for seed in range(30)} == {1.0}
    same = [seed for seed in range(30) if How().shape(seed) == How(steady=True).shape(seed)]
    assert len(same) > 5, "those that are steady anyway stay as they are"
