"""Programs that are installed: found by name, run a seed at a time, and a failing seed is reported and made small."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import boki.sim
from boki_common.errors import InvalidArgument
from boki_sim import subjects
from boki_sim.campaign import Summary, rules_of
from boki_sim.subjects import run_subject, shrink_subject, subject

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it


async def holds(cluster: Any) -> None:
    async with await cluster.connect() as client:
        await client.book("b").append(b"x")


async def never_killed(cluster: Any) -> None:
    """A program that is right unless its host is begun twice."""

    async def main(env: Any) -> None:
        await asyncio.sleep(3)

    host, other = cluster.host("fragile", main), cluster.host("other", main)
    await host.result()
    await other.result()
    assert host.starts == 1, f"begun {host.starts} times"


HOLDS = boki.sim.Subject(holds, faults="calm", seconds=0.5, model=True)
FRAGILE = boki.sim.Subject(never_killed, seconds=3.0, model=True)
NO_SUBJECT = 7


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, f"{__name__}:{value}", subjects.GROUP) for name, value in
              (("holds", "HOLDS"), ("fragile", "FRAGILE"), ("none", "NO_SUBJECT"))]  # fmt: skip

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [one for one in points if one.group == group and name in (None, one.name)]

    monkeypatch.setattr(subjects, "entry_points", entry_points)


def test_names_are_those_that_are_installed() -> None:
    assert subjects.names() == ["fragile", "holds", "none"]
    assert subject("holds").faults == "calm"
    with pytest.raises(InvalidArgument, match=r"harsh.*holds.*found 'nobody'"):
        subject("nobody")
    with pytest.raises(InvalidArgument, match="found int"):
        subject("none")


def test_a_seed_that_holds_is_an_outcome_as_of_any_profile() -> None:
    outcome, again = run_subject("holds", 3), run_subject("holds", 3, keep_trace=True)
    assert outcome.ok
    assert outcome.digest == again.digest
    assert outcome.messages > 0
    assert outcome.virtual_s > 0
    assert outcome.replay == "boki sim replay 3 --profile holds"
    assert run_subject("holds", 3, work_s=1.0).replay == "boki sim replay 3 --profile holds --seconds 1"
    summary = Summary()
    summary.add(outcome)
    assert summary.coverage()[0] == 0


def test_a_seed_that_fails_says_whose_program_failed_and_is_the_same_again() -> None:
    failed = next(one for one in (run_subject("fragile", seed) for seed in range(1, 60)) if not one.ok)
    assert "begun 2 times" in failed.violations[0]
    assert rules_of(failed.violations) == {"fragile: AssertionError in never_killed"}
    again = run_subject("fragile", failed.seed, script=failed.script)
    assert again.violations == failed.violations
    smallest = shrink_subject("fragile", failed.seed, script=None, work_s=0.0, tries=60)
    ends = [fault for fault in smallest if fault.kind in ("kill", "power", "stop")]
    assert len(ends) == 1
    assert ends[0].target == "fragile"
    assert not run_subject("fragile", failed.seed, script=smallest).ok
    with pytest.raises(InvalidArgument, match="holds: there is nothing to shrink"):
        shrink_subject("holds", 3, script=None, work_s=0.0, tries=5)
