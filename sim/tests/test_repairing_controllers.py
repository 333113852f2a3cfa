"""Controllers that make copies anew and drain bookies, and bookies that drop what lies elsewhere: no copy is lost between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from boki_ledger.repair.drain import Drains
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


@pytest.mark.parametrize("seed", [13, 17])
def test_bookies_are_drained_among_faults(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds whose own faults have drains, of which some end: their stores are empty then (`cluster`), and nothing is lost."""
    ended: list[str] = []
    before = Drains._delete_cookie

    async def counting(self: Drains, bookie: Any) -> None:
        ended.append(bookie)
        await before(self, bookie)

    monkeypatch.setattr(Drains, "_delete_cookie", counting)
    outcome = run_seed(seed, "harsh")
    assert outcome.ok, outcome.violations
    assert ended


def test_a_drain_that_only_lists_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what lies on the bookie that is retired, by copies that are gone, or by ledgers that nobody can recover."""
    monkeypatch.setattr("boki_ledger.repair.drain.may_list", lambda *_, **__: True)
    monkeypatch.setattr("boki_ledger.repair.drain.waits_for", lambda *_, **__: [])
    monkeypatch.setattr("boki_ledger.repair.drain.has_entries", lambda *_: False)
    monkeypatch.setattr(Drains, "is_written", _never)
    assert any(not run_seed(seed, "harsh").ok for seed in (117, 13, 17))


async def _never(*_: Any) -> bool:
    return False
