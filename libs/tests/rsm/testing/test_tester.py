"""The tester: limits, seeds and coverage."""

from __future__ import annotations

from bokirsm.testing import Exhaustive, Limits, Program, Reached, TestRsm, Uniform, run_tests
from libs.tests.rsm.testing.subjects import APP, Cell, Put, two_writers


def test_a_test_ends_after_its_runs_or_its_seconds() -> None:
    assert run_tests(Program(APP, two_writers), Limits(7, 600)).runs == 7
    assert run_tests(Program(APP, two_writers), Limits(7, 0)).runs == 1
    report = run_tests(Program(APP, two_writers), Limits(100_000, 600), strategies=[Exhaustive()])
    assert report.complete and report.runs > 6 and report.steps == report.runs * report.longest


def test_a_seed_says_which_runs_are_made() -> None:
    async def main(rsm: TestRsm) -> None:
        cell = await rsm.create(Cell, key="cell")
        await rsm.send(cell, Put(rsm.choose(range(1_000))))

    def numbers(seed: int, count: int) -> list[Reached]:
        report = run_tests(Program(APP, main), Limits(count, 600), seed=seed, strategies=[Uniform()])
        return sorted(report.reached)

    assert numbers(3, 4) == numbers(3, 4)


def test_handlers_that_no_run_reached_are_named() -> None:
    report = run_tests(Program(APP, two_writers), Limits(4, 600))
    assert Reached("Cell", "run", "Put") in report.reached
    assert Reached("Cell", "run", "Get") in report.missed and Reached("Clock", "run", "Tick") in report.missed
    assert Reached("Cell", "run", "Put") not in report.missed
    assert report.steps_per_second > 0
