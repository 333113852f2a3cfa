"""`boki repair`: what an audit finds, what is told of a controller's repair, and which exit codes say so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from boki_cli.logs.repair_commands import audit_lines, scrub_line, status_lines
from boki_cli.testing.bookies import BookieCluster
from boki_common.bookkeeper import layout
from boki_common.ids import BookieId
from boki_ledger.repair.pause import read_pause
from boki_ledger.repair.scrub_rules import Scrubbed

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

LOST = 1


async def closed_ledgers(cluster: BookieCluster) -> list[int]:
    """Two with entries and one without, on all bookies."""
    await cluster.ready()
    made = []
    for count in (3, 0, 5):
        writer = await cluster.client.create()
        for number in range(count):
            await writer.append(b"entry %d" % number)
        await writer.close()
        made.append(writer.ledger_id)
    return made


async def is_away(cluster: BookieCluster, name: str) -> None:
    """A registration ends with its session, and here all bookies share one."""
    path = layout.bookie_path(name)
    if await cluster.store.exists(path):
        await cluster.store.delete(path, version=0)


def test_an_audit_names_what_is_missing_by_its_exit_code(bookies: BookieCluster, run_boki: RunCommandLine) -> None:
    ledgers = bookies.run(closed_ledgers(bookies))
    whole = run_boki("repair", "audit", "--metadata", bookies.uri)
    assert (whole.code, whole.out.splitlines()) == (0, ["3 ledgers on 3 bookies", "no copy is missing"])
    lost = bookies.bookies[LOST]
    assert lost is not None
    bookies.run(bookies.stop_bookie(LOST))
    bookies.run(is_away(bookies, lost.bookie_id))
    found = run_boki("repair", "audit", "--metadata", bookies.uri)
    assert found.code == 1
    assert found.out.splitlines()[:4] == [
        "3 ledgers on 3 bookies",
        f"bookie {lost.bookie_id}: away",
        "more than a quarter of the bookies are away: only ledgers with a single copy left are due",
        "3 ledgers miss copies (2 with 2 copies left, 1 with 3 copies left): 8 entries, about 56 B; due now: 0 ledgers",
    ]
    assert "3 ledgers miss copies" in found.err
    told = json.loads(run_boki("repair", "audit", "--metadata", bookies.uri, "--json").out.splitlines()[0])
    assert (told["missing_ledgers"], told["missing_entries"], told["mass_outage"]) == (3, 8, True)
    assert sorted(one["ledger_id"] for one in told["most_urgent"]) == ledgers
    assert told["away"] == [{"bookie": lost.bookie_id, "retired": False, "away_s": 0.0}]


def test_without_a_controller_nobody_repairs_and_that_is_said(bookies: BookieCluster, run_boki: RunCommandLine) -> None:
    found = run_boki("repair", "status", "--metadata", bookies.uri)
    assert found.code == 3
    assert "expected a controller that leads and repairs (none is listed)" in found.err
    assert "boki repair audit" in found.err


def test_a_pause_is_for_all_and_ends_by_resume(bookies: BookieCluster, run_boki: RunCommandLine) -> None:
    done = run_boki("repair", "pause", "--reason", "works", "--metadata", bookies.uri)
    assert (done.code, done.out) == (0, "repair is paused: boki repair resume ends that\n")
    found = bookies.run(read_pause(bookies.store))
    assert (found.paused, found.reason) == (True, "works")
    done = run_boki("repair", "resume", "--json", "--metadata", bookies.uri)
    assert json.loads(done.out) == {"paused": False, "reason": ""}
    assert not bookies.run(read_pause(bookies.store)).paused
    assert run_boki("repair", "pause", "--reason", "x" * 1_001, "--metadata", bookies.uri).code == 2


def test_a_scrub_names_what_is_missing_and_makes_it_where_that_is_asked(
    bookies: BookieCluster, run_boki: RunCommandLine
) -> None:
    ledgers = bookies.run(closed_ledgers(bookies))
    run_boki("repair", "scrub", "--mend", "--metadata", bookies.uri)  # of those that were closed with two copies
    whole = run_boki("repair", "scrub", "--digests", "--metadata", bookies.uri)
    assert (whole.code, whole.out) == (0, "3 ledgers are whole\n")
    lost = bookies.bookies[LOST]
    assert lost is not None
    bookies.run(bookies.stop_bookie(LOST))
    found = run_boki("repair", "scrub", str(ledgers[0]), "--json", "--metadata", bookies.uri)
    told = json.loads(found.out.splitlines()[0])
    assert (found.code, told["ledger_id"], list(told["unanswered"])) == (1, ledgers[0], [lost.bookie_id])
    assert "1 ledger is not whole, of 1" in found.err
    assert run_boki("repair", "scrub", "999", "--metadata", bookies.uri).code != 0


def test_a_scrub_for_a_person() -> None:
    found = Scrubbed(7, copies=5, missing=3, copied=2, lost=1, unanswered={BookieId("b2"): "away"})
    found.damaged.add(4, "b1")
    found.diverged.add(5, "b1, b3")
    assert scrub_line(found.describe()) == (
        "ledger 7: 5 copies are there; 3 were missing, 2 of them made; 1 of entries that no bookie has whole; 1 damaged (4 on b1), "
        "0 of them replaced; 1 entries DIVERGED, left as they are (5 on b1, b3); bookie b2: away"
    )


AUDIT: dict[str, Any] = {
    "ledgers": 1_200,
    "unreadable_ledgers": [],
    "bookies": 5,
    "mass_outage": False,
    "away": [
        {"bookie": "b1", "retired": False, "away_s": 720.4},
        {"bookie": "b0", "retired": True, "away_s": None},
    ],
    "ledgers_by_copies_left": {"2": 11, "1": 1},
    "missing_ledgers": 12,
    "missing_entries": 4_000,
    "missing_bytes": 2_500_000,
    "leaving_ledgers": 3,
    "leaving_bytes": 1_000,
    "due_ledgers": 12,
    "due_bytes": 2_500_000,
    "most_urgent": [
        {"ledger_id": 7, "missing_entries": 1, "away": ["b0", "b1"], "written": False},
        *({"ledger_id": number, "missing_entries": 9, "away": ["b1"], "written": True} for number in range(20, 31)),
    ],
}


def test_an_audit_for_a_person() -> None:
    lines = audit_lines(AUDIT)
    assert lines[:5] == [
        "1,200 ledgers on 5 bookies",
        "bookie b1: away for 720 s",
        "bookie b0: retired",
        "12 ledgers miss copies (1 with 1 copy left, 11 with 2 copies left): 4,000 entries, about 2.5 MB; due now: 12 ledgers",
        "ledger 7: 1 entry on b0, b1",
    ]
    assert lines[5] == "ledger 20: 9 entries on b1; written still, its writer or recovery replaces them"
    assert lines[-2:] == ["… and 2 more ledgers", "3 ledgers have copies on bookies that drain: about 1.0 kB"]


@pytest.mark.parametrize(
    ("mode", "why", "expected"),
    [
        ("ours", "", "controller h:1 makes missing copies anew"),
        ("observe", "", "controller h:1 only reports missing copies (controller.repair = ours makes them anew)"),
        ("observe", "b", "controller h:1 only reports missing copies (controller.repair = ours makes them anew): b"),
        ("observe", "paused", "controller h:1 copies nothing: paused"),
        ("off", "", "controller h:1 does not look for missing copies (controller.repair = off)"),
    ],
)
def test_a_status_says_what_is_done_and_what_is_not(mode: str, why: str, expected: str) -> None:
    found = {
        "controller": "h:1",
        "mode": mode,
        "why": why,
        "paused": why == "paused",
        "audit": None,
        "repaired_ledgers": 3,
        "copied_entries": 90,
        "copied_bytes": 4_000_000,
        "bytes_per_s": 1_000_000,
        "left_s": 2.5,
        "apaches_autorecovery": {"elected": True, "disabled": True, "locked_ledgers": [4], "marked_ledgers": 3},
        "drains": [{"bookie": "b7", "waits_for": ["it drops", "and waits"]}],
        "blocked_ledgers": 1,
        "blocked": [{"ledger_id": 9, "why": ["no target"], "lost_entries": [4, 5]}],
    }
    assert status_lines(found) == [
        expected,
        "it has not looked yet",
        "Apache's AutoRecovery runs, switched off: 3 ledgers marked, 1 locked by its workers",
        "since it leads: 3 ledgers repaired, 90 entries copied (4.0 MB, 1.0 MB/s, about 2 s left)",
        "drains: bookie b7: it drops; and waits",
        "blocked: ledger 9: no target; entries on no bookie: 4, 5",
    ]
