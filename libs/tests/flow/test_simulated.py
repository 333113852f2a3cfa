"""The simulated workflows (`bokiflow_tools.simulated`) hold, and a planted rolling deploy that loses calls is found."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import boki.sim
from bokiflow import Worker
from bokiflow.client.app import App
from bokiflow.execute.transaction_children import CalledParts
from bokiflow.runtime.calls import Workflow
from bokiflow_tools.simulated import FLOW, program

pytestmark = [
    pytest.mark.blocking_allowed,
    pytest.mark.timeout(300),
]  # the simulator's guard stands in; machines may be busy


def on_models(seeds: Iterable[int]) -> None:
    for seed in seeds:
        boki.sim.run(program, seed=seed, faults="harsh", seconds=4.0, model=True, steady=True)


def test_on_models_each_workflow_ends_once_and_days_change_nothing() -> None:
    on_models(range(1, 4))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_on_clusters_each_workflow_ends_once_and_days_change_nothing() -> None:
    for seed in range(1, 4):
        boki.sim.run(program, seed=seed, faults="harsh", seconds=4.0, steady=True)


@pytest.mark.nightly
@pytest.mark.timeout(14_400)
def test_on_a_thousand_models_each_workflow_ends_once() -> None:
    on_models(range(1, 1_001))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_deploy_that_loses_calls_is_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted round of debounced calls runs only workflows that its own program has."""

    def own(app: App, name: str) -> Workflow[..., object]:
        return app.find(name)

    monkeypatch.setattr("bokiflow.client.debounce.named", own)
    with pytest.raises((AssertionError, ExceptionGroup, boki.BokiError)):
        on_models(range(1, 40))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_part_that_outlives_its_transaction_is_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted transaction ends while the start of a part that it gave up is being appended. Seed 16 finds it."""

    async def at_once(self: CalledParts, key: str) -> None:
        pass

    monkeypatch.setattr(CalledParts, "decided", at_once)
    with pytest.raises((AssertionError, ExceptionGroup, boki.BokiError)):
        on_models(range(10, 40))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_worker_that_beats_on_after_it_was_left_is_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted worker ends its parts only if its task is not cancelled while its workflows stop."""

    async def left(self: Worker, *error: object) -> None:
        await self._stop()
        for part in (self.flow, self._peers, self._follower, self.locks):
            await part.__aexit__(None, None, None)
        await self._fences.close()

    monkeypatch.setattr(Worker, "__aexit__", left)
    with pytest.raises((AssertionError, ExceptionGroup, boki.BokiError)):
        on_models(range(105, 150))


def taken(value: object, *more: object) -> object:
    """Return a value as it is."""
    return value


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "place",
    ["bokilib.records.codec.copy_json", "bokiflow.execute.body.copied", "bokiflow.client.flow.Flow._unanswered"],
)
def test_what_is_planted_is_found_by_odd_code_of_users(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Code gets the value that its history keeps; an attempt gets what the one before left; a cancelled start is not looked for."""
    monkeypatch.setattr(place, taken)
    with pytest.raises((AssertionError, ExceptionGroup, boki.BokiError)):
        on_models((1, 2, 3, 6, 10, 14, 18, 22))


def test_it_is_a_profile_of_the_simulator() -> None:
    assert FLOW.program is program
