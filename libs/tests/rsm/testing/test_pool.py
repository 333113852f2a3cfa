"""The PoolServer under the tester: properties 1 to 3 of the paper hold, and a bug of each is found."""

from __future__ import annotations

import pytest

from bokirsm.testing import Limits, Program, run_tests
from libs.tests.rsm.testing import pool
from libs.tests.rsm.testing.pool import DeafPool, ForgetfulPool, VolatilePool, pools

BUGS: dict[str, tuple[Program, set[str]]] = {
    "no creating count": (pools(ForgetfulPool), {"ScaledToGoal.announced"}),
    "volatile created count": (
        pools(VolatilePool, deletes=False),
        {"ScaledToGoal.announced", "ReachesItsSize.ended", "VolatilePool"},
    ),
    "lost deleted": (pools(DeafPool), {"DeletedIsDisposed", "_delete"}),
}


@pytest.mark.parametrize("deletes", [False, True])
def test_the_properties_hold(deletes: bool) -> None:
    report = run_tests(pools(deletes=deletes), Limits(120, 600))
    assert report.witness is None, report.witness.fault
    assert report.runs == 120


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_is_found_by_ten_seeds_of_ten(bug: str) -> None:
    program, places = BUGS[bug]
    for seed in range(1, 11):
        witness = run_tests(program, Limits(400, 600, shrink_s=0), seed=seed * 1_000).witness
        assert witness is not None, f"seed {seed * 1_000}"
        assert any(witness.place.startswith(place) for place in places), witness.fault


@pytest.mark.parametrize("bug", BUGS)
def test_the_run_of_each_bug_is_made_small(bug: str) -> None:
    witness = run_tests(BUGS[bug][0], Limits(400, 600, shrink_s=20)).witness
    assert witness is not None and witness.steps <= 30 and witness.steps <= witness.found_steps


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("deletes", [False, True])
def test_the_properties_hold_for_minutes(deletes: bool) -> None:
    report = run_tests(pools(deletes=deletes), Limits(10_000_000, 300), seed=1_000_000)
    assert report.witness is None, report.witness.fault
    assert pool.SICK and pool.FAILS
