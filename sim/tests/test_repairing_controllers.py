"""Controllers that make copies anew, and bookies that drop what lies elsewhere, in harsh weather: no copy is lost between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from boki_ledger.repair.worker import Outcome, Repaired, RepairWorker
from boki_sim.clusters.shape import Shape
from boki_sim.run import run_seed

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy


def repairing(drawn: Shape) -> Shape:
    """Five bookies, of which one is away now and then for longer than the grace; what lies elsewhere goes within seconds."""
    bookie = replace(
        drawn.bookie, gc_empties_elsewhere=True, gc_grace_s=0.5, gc_interval_s=0.5, gc_major_interval_s=0.5
    )
    engine = replace(drawn.engine, shard_age_s=1.0)  # so that ledgers close within a run
    return replace(drawn, bookies=5, controllers=2, repairs=True, bookie=bookie, engine=engine)


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> Counter[Outcome]:
    """How the repairs of ledgers ended."""
    seen: Counter[Outcome] = Counter()
    before = RepairWorker.repair

    async def counting(self: RepairWorker, *what: Any) -> Repaired:
        done = await before(self, *what)
        seen[done.outcome] += 1
        return done

    monkeypatch.setattr(RepairWorker, "repair", counting)
    return seen


@pytest.mark.parametrize(("profile", "seed"), [("harsh", 1), ("harsh", 2), ("disk", 3), ("metadata", 2)])
def test_copies_are_made_anew_and_none_is_lost(
    profile: str, seed: int, planted: Any, outcomes: Counter[Outcome]
) -> None:
    planted.shape(repairing)
    outcome = run_seed(seed, profile, work_s=6)
    assert outcome.ok, outcome.violations
    assert outcomes[Outcome.REPAIRED], outcomes
