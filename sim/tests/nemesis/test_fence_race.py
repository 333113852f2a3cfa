"""A race between a recovery and a writer that lives: our recovery wins it, one that fences only once loses it."""

from __future__ import annotations

from typing import Any

import pytest

from boki_sim.faults.faults import Fault
from boki_sim.outcome import Outcome
from boki_sim.run import run_seed

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

SEEDS = (39, 8, 4, 11, 15, 14, 20, 21, 23)
"""One of them shows what is planted; today the first."""
APART = [Fault(1.5, "clog", pair, 8.0) for pair in ("sequencer-1>sequencer-2", "sequencer-2>sequencer-1")]
"""Sequencers cannot hear each other, so one takes the term of another that lives."""
RACE = Fault(1.5, "fence-race", "all", step="recovery begins asked")
CUT_OFF = [Fault(1.4, "cut-off", one, 6.0) for one in ("engine-1", "sequencer-1")]
"""Who lost does not hear so, nor does the engine that tells its clients."""
ENGINES_DIE = [Fault(7.5, "kill", f"engine-{number}", 0.5) for number in (1, 2, 3)]
"""Whoever has what was acknowledged forgets it: then all read what was closed."""


def race(seed: int, *more: Fault, work_s: float = 6) -> Outcome:
    script = sorted([RACE, *APART, *more], key=lambda fault: fault.at)
    return run_seed(seed, "calm", script=script, work_s=work_s)


def test_it_is_run_when_a_living_sequencer_is_replaced_and_won() -> None:
    outcome = race(4)
    assert outcome.ok, outcome.violations
    assert outcome.happened["fence-race × recovery begins asked"] == 1


@pytest.fixture
def fencing_once(planted: Any) -> None:
    """One fence is lost, and what is asked afterwards, for more than the last entry, does not fence."""
    planted.unfenced(0)


@pytest.mark.usefixtures("fencing_once")
def test_a_recovery_whose_later_reads_do_not_fence_is_found_by_who_looks_at_ledgers() -> None:
    assert any("[1 acked]" in text for seed in SEEDS for text in race(seed).violations)


@pytest.mark.usefixtures("fencing_once")
def test_and_by_the_checker_of_what_clients_were_answered() -> None:
    """Both ways: call by call, and by the checkers of histories."""
    for seed in SEEDS:
        found = race(seed, *CUT_OFF, *ENGINES_DIE, work_s=9).violations
        if any("[history]" in text and "lost:" in text for text in found):
            assert any("[lost]" in text for text in found), found
            return
    raise AssertionError("no client lost anything")
