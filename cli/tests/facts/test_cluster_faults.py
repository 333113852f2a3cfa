"""What is not as it should be is said, a sentence each; what is as it should be says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from boki_cli.facts.cluster_facts import ClusterStatus, LedgerCopies, Part
from boki_cli.facts.cluster_faults import NAMED, clock_warnings, faults_of
from boki_common.engine.admission import Admission

NOW_MS = 1_800_000_000_000
DAYS_MS = 10 * 24 * 3_600_000
TWO_COPIES = "new ledgers get 2 copies, expected 3: 2 bookies take writes"
FEWER = (
    "ledger 7 (metalog of log 0) was made with 2 copies, expected 3; it keeps them until its log begins a new term: "
    "`boki log roll 0`"
)


def bookie(name: str, *, up: bool = True, read_only: bool = False, problem: str = "") -> Part:
    return Part("bookie", f"{name}:3181" if up else "", up, name, problem, {"read_only": read_only})


def sound(**changes: Any) -> ClusterStatus:
    """Three bookies, three copies, a serving sequencer and a standby."""
    asked = {"replicas": 3, "acks": 2}
    term = {"term": 4, "now_ms": NOW_MS, "time_ms": NOW_MS}
    parts = {
        "engines": [Part("engine", "e:1", True, status={"ready": True, **asked})],
        "sequencers": [
            Part("sequencer", "s:1", True, "one", "", {"log": 0, "term": term, **asked}, NOW_MS, NOW_MS + 2),
            Part("sequencer", "s:2", True, "two", status={"term": None, **asked}),
        ],
        "bookies": [bookie("a"), bookie("b"), bookie("c")],
        "view": {"logs": {"0": {"term": 4, "sequencer": "one", "metalog_ledger": 7}}},
        "ledgers": [LedgerCopies(7, "metalog of log 0", 0, 3, ["a", "b", "c"])],
    }
    return ClusterStatus(**{**parts, **changes})


def controller(*, leading: bool = True, **repair: Any) -> Part:
    audit = {"missing_ledgers": 0, "ledgers_by_copies_left": {}}
    found = {"audit": audit, "paused": False, "why": "", "blocked": [], "blocked_ledgers": 0, "drains": [], **repair}
    return Part("controller", "k:1", True, status={"leading": leading, "duties": {"repair": found}})


def test_missing_copies_pauses_blockers_and_drains_are_said_by_the_leader_alone() -> None:
    repair: dict[str, Any] = {
        "audit": {"missing_ledgers": 12, "ledgers_by_copies_left": {"2": 11, "1": 1}},
        "paused": True,
        "why": "paused (works): boki repair resume ends that",
        "blocked": [{"ledger_id": number, "why": ["no target"]} for number in range(7)],
        "blocked_ledgers": 7,
        "drains": [{"bookie": "d", "waits_for": ["it drops", "it waits"]}],
    }
    bookies = [bookie("a"), bookie("b"), bookie("c"), bookie("d", read_only=True)]
    assert faults_of(sound(bookies=bookies, controllers=[controller(leading=False), controller(**repair)])) == [
        "12 ledgers miss copies on bookies that are away (1 with 1 copy left, 11 with 2 copies left): `boki repair status`",
        "repair is paused (works): boki repair resume ends that",
        *(f"ledger {number} is not repaired: no target" for number in range(5)),
        "2 more ledgers are not repaired",
        "bookie d drains: it drops; it waits",
    ]
    assert faults_of(sound(controllers=[controller(leading=False, **repair)])) == []
    assert faults_of(sound(controllers=[controller(audit=None)])) == [], "it has not looked yet"
    assert faults_of(sound(controllers=[Part("controller", "k:1", True, status={"leading": True})])) == []


def test_a_sound_cluster_has_no_faults() -> None:
    assert faults_of(sound()) == []


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        (
            {"bookies": [bookie("a"), bookie("b"), bookie("c", up=False, problem="it is not registered")]},
            ["bookie c is down: it is not registered", TWO_COPIES],
        ),
        (
            {"bookies": [bookie("a"), bookie("b"), bookie("c"), bookie("d", up=False, problem="it is not registered")]},
            ["bookie d is down: it is not registered"],
        ),
        (
            {"bookies": [bookie("a"), bookie("b"), bookie("c", read_only=True)]},
            [
                "bookie c:3181 is read only: its disk is full, or an administrator set it so; it gets no new entries",
                TWO_COPIES,
            ],
        ),
        ({"bookies": [bookie("a")]}, ["new ledgers cannot be made: 1 bookie takes writes, expected at least 2"]),
        ({"bookies": []}, ["no bookie takes writes"]),
        (
            {"ledgers": [LedgerCopies(7, "metalog of log 0", 0, 3, ["a", "b"])]},
            [FEWER],
        ),
        (
            {"ledgers": [LedgerCopies(7, "metalog of log 0", 0, 3, [], "expected a LedgerMetadata")]},
            ["ledger 7 (metalog of log 0): expected a LedgerMetadata"],
        ),
        ({"ledgers": [LedgerCopies(7, "metalog of log 0", 0, 0, ["a"])]}, []),
        ({"engines": [Part("engine", "e:1", False, "e", "cannot connect")]}, ["engine e:1 is down: cannot connect"]),
    ],
)
def test_redundancy_that_is_used_up_is_said(changes: dict[str, Any], faults: list[str]) -> None:
    assert faults_of(sound(**changes)) == faults


def test_a_standby_that_is_down_is_a_fault_although_the_log_is_served() -> None:
    found = sound()
    found.sequencers[1] = Part("sequencer", "s:2", False, "node/s:2", "cannot connect to s:2")
    assert faults_of(found) == ["sequencer s:2 is down: cannot connect to s:2"]


def test_of_many_ledgers_with_few_copies_some_are_named() -> None:
    few = [LedgerCopies(number, "shard", 0, 3, ["a"]) for number in range(NAMED + 3)]
    faults = faults_of(sound(ledgers=few))
    assert len(faults) == NAMED + 1
    assert faults[-1] == "3 more ledgers that are written now have fewer copies than expected"


def test_who_asks_for_more_than_others_is_named() -> None:
    found = sound(bookies=[bookie("a")])
    for part in (found.engines[0], found.sequencers[0]):
        part.status.update(replicas=1, acks=1)
    found.ledgers = []
    assert faults_of(found) == [
        "new ledgers of sequencer s:2 cannot be made: 1 bookie takes writes, expected at least 2"
    ]


def test_a_roll_is_no_remedy_while_bookies_are_missing() -> None:
    few = [LedgerCopies(7, "metalog of log 0", 0, 3, ["a", "b"])]
    faults = faults_of(sound(ledgers=few, bookies=[bookie("a"), bookie("b")]))
    assert "it keeps them until its log begins a new term" in faults[1]
    assert not any("log roll" in fault for fault in faults)


def test_times_of_a_log_that_are_ahead_of_the_clock_are_said() -> None:
    found = sound()
    found.sequencers[0].status["term"]["time_ms"] = NOW_MS + DAYS_MS
    (fault,) = faults_of(found)
    assert fault.startswith(
        "sequencer s:1: log 0: the log's time is 864000.0 s ahead of this machine's clock, expected"
    )


def test_a_sequencer_whose_clock_is_ahead_is_said_and_a_slow_answer_is_not() -> None:
    found = sound()
    found.sequencers[0].status["term"]["now_ms"] = NOW_MS + DAYS_MS
    (fault,) = faults_of(found)
    assert fault.startswith(
        "sequencer s:1: log 0: the sequencer's clock is 864000.0 s ahead of this machine's, expected"
    )
    slow = sound().sequencers[0]
    slow.status["term"]["now_ms"] = NOW_MS + 20_000
    slow.received_ms = NOW_MS + 60_000
    assert clock_warnings(slow) == []


REFUSED = Admission(0, 1, 1)


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        ({"logs": [{"log": 1, "clock": {"warning": "differ"}}, {"log": 2, "clock": None}]}, "log 1: differ"),
        ({"faults": ["log 0 stops at entry 7"]}, "log 0 stops at entry 7"),
        ({"appends_refused": REFUSED._asdict()}, f"DiskFull: {REFUSED.error()}"),
    ],
)
def test_what_an_engine_found_of_clocks_or_cannot_read_is_a_fault(status: dict[str, Any], fault: str) -> None:
    found = sound()
    found.engines[0].status.update(status)
    assert faults_of(found) == [f"engine e:1: {fault}"]


def test_faults_are_what_a_script_waits_to_be_gone() -> None:
    serving = Part("sequencer", "s:1", True, "one", status={"term": {"term": 4}})
    logs: dict[str, Any] = {"0": {"term": 4, "sequencer": "one"}}
    plain = ClusterStatus(
        [Part("engine", "e:1", True, status={"ready": True})], [serving], [bookie("b")], {"logs": logs}
    )
    assert faults_of(plain) == []
    assert faults_of(ClusterStatus(plain.engines)) == [
        "bookies and sequencers are not known: no engine names a metadata store that is here"
    ]
    broken = ClusterStatus(
        [Part("engine", "e:1", True, status={"ready": False}), Part("engine", "e:2", False, problem="refused")],
        [Part("sequencer", "s:1", True, "one", status={"term": {"term": 3}, "failed": "TermOver"})],
        [bookie("b", read_only=True)],
        {"logs": logs | {"1": None}},
    )
    assert faults_of(broken) == [
        "engine e:2 is down: refused",
        "sequencer s:1 failed: TermOver",
        "engine e:1 catches up",
        "bookie b:3181 is read only: its disk is full, or an administrator set it so; it gets no new entries",
        "no bookie takes writes",
        "log 0 is served by nobody: its sequencer one does not answer so",
        "log 1 has no term yet: a sequencer and enough bookies begin one",
    ]
