"""Strategies: which runs they make, and that they are fair where they say so."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from bokirsm.testing import Delays, Diverged, Exhaustive, Priorities, Sticky, Strategy, Uniform, portfolio
from bokirsm.testing.strategies import FAIR_AFTER, STRATEGIES, Decision, Scripted, strategies_of

KEYS = ["a", "b", "c"]


def chosen(strategy: Strategy, seed: int, steps: int = 200, first: int = 0) -> list[str]:
    strategy.begin(seed)
    return [KEYS[strategy.next(KEYS, first + step)] for step in range(steps)]


@pytest.mark.parametrize("strategy", portfolio(), ids=lambda one: str(one.name))
def test_a_seed_decides_a_run_and_another_seed_another_one(strategy: Strategy) -> None:
    assert chosen(strategy, 7) == chosen(strategy, 7)
    assert len({tuple(chosen(strategy, seed)) for seed in range(20)}) > 3


@pytest.mark.parametrize("strategy", portfolio(), ids=lambda one: str(one.name))
def test_a_fair_strategy_lets_each_machine_run_in_the_end(strategy: Strategy) -> None:
    assert strategy.fair_from is not None
    for seed in range(10):
        assert {*chosen(strategy, seed, first=strategy.fair_from)} == {*KEYS}
    assert strategy.fair_from in (0, FAIR_AFTER)


def changes(strategy: Strategy, seed: int) -> int:
    found = chosen(strategy, seed, steps=2_500)
    return sum(one != other for one, other in itertools.pairwise(found))


def test_priorities_and_delays_change_at_ten_steps_at_most() -> None:
    for strategy in (Priorities(10), Delays(10)):
        counts = [changes(strategy, seed) for seed in range(100)]
        assert max(counts) <= 10 and min(counts) == 0
    assert sum(changes(Sticky(3), seed) for seed in range(10)) < sum(changes(Uniform(), seed) for seed in range(10)) / 4


def test_priorities_of_machines_that_come_later_are_random_too() -> None:
    first = Counter[str]()
    for seed in range(300):
        strategy = Priorities(0)
        strategy.begin(seed)
        strategy.next(["a"], 0)
        first[["a", "b"][strategy.next(["a", "b"], 1)]] += 1
    assert min(first["a"], first["b"]) > 90


def test_numbers_of_any_bound_are_chosen() -> None:
    one = Uniform()
    one.begin(1)
    assert {one.pick(3) for _ in range(50)} == {0, 1, 2}
    assert max(one.pick(1 << 80) for _ in range(50)) > 1 << 70


def test_dfs_makes_each_run_once() -> None:
    dfs, runs = Exhaustive(), []
    while not dfs.complete:
        dfs.begin(0)
        run = [dfs.next(KEYS[:2], 0)]
        run += [dfs.pick(3)] if run[0] else [int(dfs.crash())]
        runs.append(tuple(run))
        dfs.ended()
    assert runs == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def test_dfs_notices_a_program_with_choices_of_its_own() -> None:
    dfs = Exhaustive()
    dfs.begin(0)
    dfs.pick(2)
    dfs.ended()
    dfs.begin(0)
    with pytest.raises(Diverged, match="expected 2 options at decision 1, as before, found 3"):
        dfs.pick(3)


SCRIPT = [Decision("run", "b"), Decision("pick", 2), Decision("run", "z"), Decision("crash", 1), Decision("run", "c")]


def test_a_strict_script_has_to_fit() -> None:
    script = Scripted(SCRIPT, strict=True, checks=False)
    script.begin(0)
    assert script.next(KEYS, 0) == 1 and script.pick(3) == 2
    with pytest.raises(Diverged, match="expected z to run in step 2, as before, found a, b, c"):
        script.next(KEYS, 1)
    script.begin(0)
    with pytest.raises(Diverged, match="of kind 'pick', as before, found another"):
        script.pick(3)


def test_a_lenient_script_leaves_out_what_does_not_fit() -> None:
    script = Scripted(SCRIPT, strict=False, checks=True)
    script.begin(0)
    assert script.next(KEYS, 0) == 1 and script.pick(2) == 0 and script.check()
    assert script.next(KEYS, 1) == 2, "z has nothing to handle"
    assert script.next(KEYS, 2) == 2, "what ran last continues"
    assert script.next(["a"], 3) == 0 and not script.crash()


def test_strategies_have_names() -> None:
    assert [one.name for one in strategies_of("")] == ["random", "probabilistic(3)", "pct(10)", "delay(10)"]
    assert all(strategies_of(name)[0].name.startswith(name) for name in STRATEGIES)
