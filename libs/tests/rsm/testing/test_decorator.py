"""`rsm_test`, and the options of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from boki_common.errors import InvalidArgument
from bokirsm.testing import BugFound, Limits, Program, Report, TestRsm, parse_witness, rsm_test
from bokirsm.testing.decorator import rsm_test_of
from libs.tests.rsm.testing.subjects import APP, two_writers
from libs.tests.rsm.testing.test_witness import NoFour

reports: list[Report] = []


@rsm_test(APP, iterations=8)
async def test_a_program_is_a_test(rsm: TestRsm) -> None:
    await two_writers(rsm)


@rsm_test(APP, two_writers, iterations=8)
def test_a_function_gets_the_report(report: Report) -> None:
    assert report.runs == 8 and report.witness is None


@rsm_test(APP, monitors=[NoFour], seed=3)
async def _wrong(rsm: TestRsm) -> None:
    """A test that finds a fault."""
    await two_writers(rsm)


def test_a_fault_fails_the_test_with_its_story() -> None:
    with pytest.raises(BugFound, match="3 came before 1") as raised:
        _wrong()
    assert isinstance(raised.value.__cause__, AssertionError), "the error of the monitor, with its stack"
    assert "\n\nfound by " in str(raised.value) and "again:" not in str(raised.value)


class FakeConfig:
    """The part of pytest's configuration that tests read."""

    def __init__(self, **options: object) -> None:
        self.options = options

    def getoption(self, name: str, default: object = None) -> object:
        return self.options.get(name, default)


def test_the_witness_is_written_and_replayed() -> None:
    with pytest.raises(BugFound, match="again: pytest … --rsm-replay=") as raised:
        _wrong(FakeConfig())
    path = str(raised.value).rpartition("--rsm-replay=")[2]
    assert parse_witness(Path(path).read_bytes()).test.endswith("test_decorator:_wrong")
    replays = FakeConfig(**{"--rsm-replay": path})
    with pytest.raises(BugFound) as again:
        _wrong(replays)
    assert str(again.value) == raised.value.story
    test_a_program_is_a_test(replays)  # the witness is of another test: nothing runs


def test_a_seed_runs_alone() -> None:
    test_a_function_gets_the_report(FakeConfig(**{"--rsm-seed": 17}))  # whose runs would be 1


def test_what_is_no_test_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="found a function that is not async"):
        rsm_test(APP)(lambda rsm: None)
    with pytest.raises(InvalidArgument, match="expected a:b to be a function under @rsm_test or a Program"):
        rsm_test_of(7, "a:b")
    assert rsm_test_of(lambda: Program(APP, two_writers), "a:b").limits == Limits()
    assert rsm_test_of(_wrong, "").name == "libs.tests.rsm.testing.test_decorator:_wrong" and _wrong.__doc__
