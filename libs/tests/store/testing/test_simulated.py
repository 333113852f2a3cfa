"""Stores in the simulator hold; a rule that is broken is found; and the judgement of histories, case by case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import boki.sim
from boki_common.errors import BokiError, DiskFull, InvalidArgument, OutcomeUnknown
from bokistore.testing.cycles import Transacted
from bokistore.testing.simulated import STORE, Call, Notes, Shop, faults_of, when_taken

pytestmark = [
    pytest.mark.blocking_allowed,
    pytest.mark.timeout(300),
]  # the simulator's guard stands in; machines may be busy


def test_seeds_hold_and_everybody_does_something() -> None:
    """How much in one of them depends on its faults: engines and logs may stand still for most of it."""
    committed, counted = [], []
    for seed in range(1, 5):
        shops: list[Shop] = []

        async def program(cluster: boki.sim.Cluster, shops: list[Shop] = shops) -> None:
            shops.append(Shop(cluster))
            await shops[0].run()

        boki.sim.run(program, seed=seed, faults=STORE.faults, seconds=STORE.seconds, steady=STORE.steady)
        committed.append(sum(call.outcome == "ok" for call in shops[0].notes.calls))
        counted.append(shops[0].notes.counted)
    assert min(committed) > 0 and sum(committed) > 100
    assert min(counted) > 0 and sum(counted) > 50


@pytest.mark.nightly
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("first", range(1_000, 2_000, 125))
def test_a_thousand_harsh_seeds_hold(first: int) -> None:
    for seed in range(first, first + 125):
        boki.sim.run(STORE.program, seed=seed, faults=STORE.faults, seconds=STORE.seconds, steady=STORE.steady)


def run_on_models(seeds: Iterable[int]) -> None:
    for seed in seeds:
        boki.sim.run(STORE.program, seed=seed, faults="network", seconds=4.0, model=True)


def test_on_models_they_hold_too() -> None:
    run_on_models(range(1, 4))


async def test_a_call_is_repeated_only_after_errors_that_are_definite_and_retryable() -> None:
    """Bookies whose disks were full refuse appends for a moment after the faults; seed 2400014 meets that after the last fault."""
    errors: list[BokiError] = [DiskFull("full"), DiskFull("full")]

    async def call() -> int:
        if errors:
            raise errors.pop()
        return 5

    assert await when_taken(call) == 5
    for error in (OutcomeUnknown("lost"), InvalidArgument("never")):
        errors = [error]
        with pytest.raises(type(error)):
            await when_taken(call)


def test_write_skew_is_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serializable by name, with the expectations of a snapshot. Seeds of the strict level only, which others allow it."""

    def as_a_snapshot(isolation: str, snapshot: int, *, read: Any, written: Iterable[str]) -> dict[str, int | None]:
        return dict.fromkeys(written, snapshot)

    monkeypatch.setattr("bokistore.commit.transaction_rules.expectations", as_a_snapshot)
    with pytest.raises(AssertionError, match=r"^a cycle$"):
        run_on_models(range(0, 90, 3))


def test_lost_updates_are_found_when_they_are_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of who wrote last are wrong then too, and checkpoints made of them: so an update may be gone altogether."""
    monkeypatch.setattr("bokistore.commit.transaction_rules.expectations", lambda *_, **__: {})
    with pytest.raises(AssertionError, match=r"cycle|was reported committed|which ended as"):
        run_on_models(range(1, 90, 3))


def test_members_of_a_group_that_do_not_see_one_another_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokistore.commit.group_rules.must_see", lambda later, earlier: False)
    with pytest.raises(AssertionError, match="cycle"):
        run_on_models(range(0, 90, 3))


def notes_of(*calls: tuple[str, list[Transacted], int], counted: int = 0) -> Notes:
    notes = Notes(counted=counted, begun_to_count=counted)
    for outcome, attempts, committed in calls:
        notes.calls.append(Call([one.number for one in attempts], outcome, committed))
        notes.attempts |= {one.number: one for one in attempts}
    return notes


def wrote(number: int, **appended: int) -> Transacted:
    return Transacted(number, {}, appended)


@pytest.mark.parametrize(
    ("notes", "last", "wrong"),
    [
        (notes_of(("ok", [wrote(1, a=1)], 1)), {"a": [1]}, ""),
        (notes_of(("ok", [wrote(1, a=1)], 1)), {"a": []}, "reported committed"),
        (notes_of(("refused", [wrote(1, a=1)], 0)), {"a": [1]}, "was refused, and is there"),
        (notes_of(("refused", [wrote(1, a=1)], 0)), {"a": []}, ""),
        (notes_of(("", [wrote(1, a=1)], 0)), {"a": [1]}, ""),
        (notes_of(("", [wrote(1, a=1)], 0)), {"a": []}, ""),
        (notes_of(("ok", [wrote(1, a=1), wrote(2, a=2)], 2)), {"a": [1, 2]}, "committed twice"),
        (notes_of(("ok", [wrote(1, a=1), wrote(2, a=2)], 2)), {"a": [1]}, "reported committed"),
        (notes_of(("ok", [Transacted(1, {"a": [7]})], 1)), {"a": []}, "read"),
        (notes_of(("", [Transacted(1, {"a": [7]})], 0)), {"a": []}, ""),
    ],
)
def test_answers_are_compared_with_what_is_there(notes: Notes, last: Mapping[str, list[int]], wrong: str) -> None:
    found = faults_of(notes, dict(last), 0, serializable=True)
    assert wrong in "".join(found)
    assert bool(found) == bool(wrong)


def test_a_count_is_between_what_was_acknowledged_and_what_was_begun() -> None:
    notes = Notes(counted=3, begun_to_count=5)
    assert [bool(faults_of(notes, {}, count, serializable=True)) for count in (2, 3, 5, 6)] == [
        True,
        False,
        False,
        True,
    ]
