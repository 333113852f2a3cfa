"""The survey under the tester: a report is complete, and a vote after the survey was closed is found."""

from __future__ import annotations

import pytest

from bokirsm.testing import Limits, run_tests
from libs.tests.rsm.testing.survey import LateCoordinator, surveys


def test_reports_are_complete() -> None:
    report = run_tests(surveys(), Limits(200, 600))
    assert report.witness is None, report.witness.fault


def test_a_vote_after_the_end_is_found_by_ten_seeds_of_ten() -> None:
    for seed in range(1, 11):
        witness = run_tests(surveys(LateCoordinator), Limits(400, 600, shrink_s=0), seed=seed * 1_000).witness
        assert witness is not None and witness.place == "ReportIsComplete.committed", f"seed {seed * 1_000}"
    small = run_tests(surveys(LateCoordinator), Limits(400, 600, shrink_s=20)).witness
    assert small is not None and small.steps <= 12


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_reports_are_complete_for_minutes() -> None:
    assert run_tests(surveys(), Limits(10_000_000, 300), seed=1_000_000).witness is None
