"""Writers that the log forgets are forgotten when it may, and for ever; what forgets too early, or not for ever, is found."""

from __future__ import annotations

from typing import Any

import pytest

from boki_logbook.upkeep.watched_time import WatchedTime
from boki_logbook.writers.verdict import Verdicts
from boki_logbook.writers.writers import WriterState
from boki_sim.clusters.shape import forgetful
from boki_sim.outcome import Outcome
from boki_sim.run import run_seed
from boki_sim.work.call_mix import NUMBERED
from boki_sim.work.operations import BOOKS

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it


@pytest.fixture
def named(planted: Any) -> Any:
    """Clients that use named writers only, of clusters that forget them."""
    planted.clients({NUMBERED: 1.0}, books=BOOKS, pause_s=0.1, conditional=0.0)
    planted.shape(forgetful)
    return planted


@pytest.mark.usefixtures("named")
def test_writers_are_forgotten_when_they_were_idle_for_long_and_the_cluster_holds() -> None:
    outcomes = [run_seed(seed, "calm", work_s=1.5, keep_trace=True) for seed in (1, 2)]
    assert not [text for outcome in outcomes for text in outcome.violations]
    lines = [line for outcome in outcomes for line in outcome.trace if " goes on as " in line]
    assert any("WriterForgotten" in line for line in lines), "a session that knows of later numbers"
    assert any("have no holes" in line for line in lines), "one that asked how far the writer is"
    assert any(line.endswith(" ") for line in lines), "some are used before they are forgotten"


def test_writers_that_are_forgotten_too_early_are_found(named: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = WatchedTime.__init__
    monkeypatch.setattr(WatchedTime, "__init__", lambda self, age_s: before(self, age_s / 20))
    outcome: Outcome = named.found("all before it were answered", seeds=range(1, 5))
    assert any("[history]" in text for text in outcome.violations)


def test_a_forgotten_writer_whose_numbers_are_decided_again_is_found(
    named: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the first number that is seen of a writer were always its next: what was decided long since is decided again."""
    before = Verdicts._begin

    def begin(self: Verdicts, run: Any, key: bytes) -> WriterState:
        state = before(self, run._replace(first=1), key)
        assert state is not None, "a named one is refused by nobody"
        state.last = run.first - 1
        return state

    monkeypatch.setattr(Verdicts, "_begin", begin)
    monkeypatch.setattr("boki._numbers.Numbers.gap", lambda self, last: True)
    outcome: Outcome = named.found("duplicate:", seeds=range(1, 8))
    assert any("[history]" in text for text in outcome.violations)
