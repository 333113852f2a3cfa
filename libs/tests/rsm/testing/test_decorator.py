"""`rsm_test`, and the options of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from boki_common.errors import InvalidArgument
from bokirsm.testing import BugFound, Limits, Program, Report, TestRsm, pytest_plugin, rsm_test
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


def test_a_fault_fails_the_test_with_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest_plugin, "_chosen", {})
    with pytest.raises(BugFound, match="3 came before 1") as raised:
        _wrong()
    assert isinstance(raised.value.__cause__, AssertionError), "the error of the monitor, with its stack"
    assert "\n\nfound by " in str(raised.value) and "again:" not in str(raised.value)


class FakeConfig:
    """The part of pytest's configuration that the plugin reads."""

    def __init__(self, **options: object) -> None:
        self.options = options

    def getoption(self, name: str) -> object:
        return self.options.get(name)


@pytest.fixture(autouse=True)
def _options_of_this_run_again() -> object:
    before = dict(pytest_plugin._chosen)
    yield
    pytest_plugin._chosen.clear()
    pytest_plugin._chosen.update(before)


def test_the_witness_is_written_and_replayed() -> None:
    pytest_plugin.pytest_configure(FakeConfig())
    with pytest.raises(BugFound, match="again: pytest … --rsm-replay=") as raised:
        _wrong()
    path = str(raised.value).rpartition("--rsm-replay=")[2]
    pytest_plugin.pytest_configure(FakeConfig(**{"--rsm-replay": path}))
    assert pytest_plugin.chosen_witness() == Path(path).read_bytes()
    with pytest.raises(BugFound) as again:
        _wrong()
    assert str(again.value) == str(raised.value).rpartition("\n\nagain:")[0]
    test_a_program_is_a_test()  # the witness is of another test: nothing runs


def test_a_seed_runs_alone() -> None:
    pytest_plugin.pytest_configure(FakeConfig(**{"--rsm-seed": 17}))
    assert pytest_plugin.chosen_seed() == 17
    test_a_function_gets_the_report()  # whose runs would be 1


def test_what_is_no_test_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="found a function that is not async"):
        rsm_test(APP)(lambda rsm: None)
    with pytest.raises(InvalidArgument, match="expected a:b to be a function under @rsm_test or a Program"):
        rsm_test_of(7, "a:b")
    assert rsm_test_of(lambda: Program(APP, two_writers), "a:b").limits == Limits()
    assert rsm_test_of(_wrong, "").name == "libs.tests.rsm.testing.test_decorator:_wrong" and _wrong.__doc__
