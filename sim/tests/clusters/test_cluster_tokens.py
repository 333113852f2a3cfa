"""Clusters with a token: which have one, and that while it is exchanged everybody lets in everybody else."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_sim.clusters.cluster_tokens import NO_PLAN, SPREAD_S, TokenFiles, TokenPlan, draw_tokens, exchange
from boki_sim.faults.faults import PROFILES
from boki_sim.world.ending import uncollected
from boki_sim.world.loop import SimLoop
from boki_sim.world.trace import Trace


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_one_harsh_cluster_of_three_has_a_token_and_half_of_these_exchange_it(profile: str) -> None:
    plans = [draw_tokens(random.Random(seed), profile, seconds=12) for seed in range(600)]
    if profile != "harsh":
        assert set(plans) == {NO_PLAN}
        return
    with_token = [plan for plan in plans if plan.tokens]
    exchanged = [plan for plan in with_token if plan.changes]
    assert 150 < len(with_token) < 250
    assert 0.4 < len(exchanged) / len(with_token) < 0.6
    for plan in exchanged:
        assert len(plan.tokens) == len(set(plan.tokens)) == 2
        assert all(later - earlier > SPREAD_S for earlier, later in pairwise(plan.changes))


def test_two_tokens_are_valid_while_one_gives_way_to_the_other() -> None:
    assert exchange(["old"]) == []
    steps = [("old",), *exchange(["old", "new"])]
    assert steps == [("old",), ("old", "new"), ("new", "old"), ("new",)]
    for before, after in pairwise(steps):
        for shows, asks in ((before, after), (after, before)):
            assert ClusterToken(asks).accepts(shows[0]), "machines that are ahead and behind let in each other"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_at_any_time_every_machine_lets_in_every_other(seed: int) -> None:
    plan = TokenPlan(("a" * 16, "b" * 16), (0.0, 1.3 * SPREAD_S, 2.6 * SPREAD_S))
    with uncollected():
        loop = SimLoop(seed)
        files = TokenFiles(loop, plan, random.Random(seed), Trace(loop))
        hosts = [f"10.0.0.{number}" for number in range(5)]
        seen = set()

        async def scenario() -> None:
            for host in hosts[:4]:
                files.of(host)
            files.begin()
            for tick in range(80):
                known = hosts if tick > 25 else hosts[:4]  # one machine comes in the middle of it
                for one in known:
                    for other in known:
                        shown = files.of(one).shown
                        assert shown is not None
                        assert files.of(other).accepts(shown)
                seen.add(tuple(files.of(host).valid for host in hosts[:4]))
                await asyncio.sleep(0.1)
            assert {files.of(host).shown for host in hosts} == {"b" * 16}
            assert {files.of(host).valid for host in hosts} == {1}

        loop.run_until_complete(scenario())
        loop.end()
    assert (2, 2, 2, 2) in seen


def test_a_cluster_without_a_token_shows_and_asks_nothing(simulation: Any) -> None:
    files = TokenFiles(simulation.loop, NO_PLAN, random.Random(1), simulation.trace)
    assert files.of("10.0.0.1") is NO_TOKEN
    assert not files.asked
