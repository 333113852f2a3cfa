"""Machines on simulated clusters hold (`bokirsm_tools.simulated`), planted mistakes are found, and a seed is one run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import boki.sim
from boki.testing import MemoryCluster
from bokilib import Log
from bokirsm import Host, Rsm
from bokirsm_tools.reading import group_states
from bokirsm_tools.simulated import (
    RSM,
    Call,
    Notes,
    Works,
    left_over,
    out_of_order,
    program,
    wrong_mails,
    wrong_outcomes,
)
from bokirsm_tools.simulated_machines import GROUP, NEW, Archive, Begin, Journal, Outside, Posts, Reminder
from itests.support.two_processes import lines_of_two

pytestmark = [
    pytest.mark.blocking_allowed,
    pytest.mark.timeout(300),
]  # the simulator's guard stands in; machines may be busy

DIGESTS = """
from boki_sim.simulated import How, ProgramRun
from bokirsm_tools.simulated import program
for seed in (1,):
    run = ProgramRun(seed, "harsh", 3.0, None, How(True, True))
    run.go(program)
    print(seed, run.trace.digest())
"""


def on_models(seeds: Iterable[int]) -> list[int]:
    """Run seeds; return how many calls of each got InboxFull."""
    refused: list[int] = []

    async def counted(cluster: boki.sim.Cluster) -> None:
        works = Works(cluster)
        await works.run()
        refused.append(works.notes.refused)

    for seed in seeds:
        boki.sim.run(counted, seed=seed, faults="harsh", seconds=4.0, model=True, steady=True)
    return refused


def test_on_models_each_event_is_handled_once_and_days_change_nothing() -> None:
    """In 18, an end of a machine reaches the archive right after it was asked, and records were trimmed before they were read."""
    refused = on_models((1, 2, 3, 4, 5, 6, 7, 18, 89, 108))
    assert sum(refused), f"the inboxes of no host were full: {refused}"


async def test_what_waits_in_partitions_is_left_over(cluster: MemoryCluster) -> None:
    async with await cluster.connect() as client:
        log = Log(client.book("b"))
        rsm = Rsm(NEW, log)
        assert not left_over(await group_states(log, GROUP))
        archive = await rsm.create(Archive, key="archive")
        reminder = await rsm.create(Reminder, Begin(archive), key="reminder")
        waits = {f"{one} waits" for one in (f"creation to {archive}", f"Begin to {reminder}")}
        assert set(left_over(await group_states(log, GROUP))) == waits
        async with Host(NEW, log, plugins=[Posts(Outside(), None)]):
            assert await rsm.ask(Journal().to(reminder)) == await rsm.ask(Journal().to(archive)) == []
            assert not left_over(await group_states(log, GROUP))  # but the timer of days


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_on_clusters_each_event_is_handled_once_and_days_change_nothing() -> None:
    for seed in range(1, 11):
        boki.sim.run(program, seed=seed, faults="harsh", seconds=4.0, steady=True)


@pytest.mark.nightly
@pytest.mark.timeout(14_400)
def test_on_a_thousand_models_each_event_is_handled_once() -> None:
    on_models(range(1, 1_001))


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Two processes with different hash seeds: no set's order reaches a decision."""
    one, other = lines_of_two(DIGESTS)
    assert len(one) == 1 and one == other


def missed(outcome: str, journal: list[str], skips: int = 0) -> list[str]:
    """Return what is wrong if a client got an outcome for its event `c.1/1` to machine `m`."""
    notes = Notes({"c.1/1": Call(("m",), outcome)})
    notes.skips["m"] = skips
    return list(wrong_outcomes(notes, {"m": journal}))


def test_outcomes_of_calls_are_held_against_journals() -> None:
    assert not missed("ok", ["c.1/1"]) and not missed("never", []) and not missed("ok", [], skips=1)
    assert not missed("unknown", []) and not missed("unknown", ["c.1/1"])
    for outcome, journal in (("ok", []), ("ok", ["c.1/1"] * 2), ("never", ["c.1/1"]), ("unknown", ["c.1/1"] * 2)):
        assert missed(outcome, journal), (outcome, journal)


def test_the_events_of_a_client_come_in_the_order_of_its_calls() -> None:
    assert not list(out_of_order({"m": ["c.1/1", "d.1/1", "c.1/3", "grown c.1/2", "sent node-1 1"]}, {}))
    late = {"m": ["c.1/3", "d.1/1", "c.1/1"]}
    assert list(out_of_order(late, {})) and list(out_of_order(late, {"c.1/1": Call(("m",), "ok")}))
    assert not list(out_of_order(late, {"c.1/1": Call(("m",), "unknown")}))
    early = {"m": ["c.1/3", "c.1/1"]}
    assert list(out_of_order(early, {"c.1/1": Call(("m",), "ok"), "c.1/3": Call(("m",), "unknown")}))


def test_mails_are_those_that_were_emitted_and_answered_once() -> None:
    journal = ["c.1/1", "mailed 1 7", "posted 1", "mailed 2 8", "posted 2"]
    assert not list(wrong_mails(journal, [(1, 7), (1, 7), (2, 8), (1, 7)]))
    for lines, mails in (
        (journal, [(1, 7)]),  # one is lost
        (journal, [(2, 8), (1, 7)]),  # out of order
        (journal, [(1, 6), (1, 7), (2, 8)]),  # of a handler that failed
        ([*journal, "posted 1"], [(1, 7), (2, 8)]),  # answered twice
        (journal[:-1], [(1, 7), (2, 8)]),
    ):
        assert list(wrong_mails(lines, mails)), (lines, mails)


def test_it_is_a_profile_of_the_simulator() -> None:
    assert RSM.program is program
