"""The benchmark beside Apache BookKeeper runs, and says what it found in lines for programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import ledger, ledger_disk
from benchmarks.ledger import Bench
from benchmarks.ledger_cluster import LedgerCluster
from benchmarks.ledger_ours import Measured, Span
from itests.bookkeeper.java_service import JavaError
from itests.support.zookeeper import ROOT


def figures(per_s: float, p50_ms: float = 1.0, p99_ms: float = 2.0) -> Measured:
    return Measured(per_s, p50_ms, p99_ms, (1.0, 1.0, 2.0, 1.0))


class NothingRuns(LedgerCluster):
    """No processes."""

    def run_only(self, side: str, *, java: bool) -> None: ...


class BreaksOff(Bench):
    """Measures nothing, and fails at one pair."""

    def __init__(self, cluster: LedgerCluster, span: Span) -> None:
        super().__init__(cluster, span)
        self.begun: list[str] = []

    async def _measure(self, pair: ledger.Pair, begin: Callable[[str], None]) -> None:
        begin(ledger.ADD_64.name)
        self.begun.append(pair.name)
        if pair is ledger.EAGER:
            raise JavaError("IllegalStateException", "an operation failed")


def made_up() -> Bench:
    """Every case of every pair at 1,000/s, but Java's default at half of that; one fast and one slow round of ours."""
    bench = Bench(LedgerCluster(), Span(0.0, 1.0))
    for pair in ledger.PAIRS:
        for case in (*ledger.ADDS, *ledger.READS):
            rounds = [figures(1_000.0)] * 3
            if pair is ledger.OURS:
                rounds = [figures(1_500.0), figures(1_000.0), figures(100.0)]
            elif pair is ledger.DEFAULT:
                rounds = [figures(500.0, p50_ms=4.0, p99_ms=1.0)] * 3
            bench.measured[pair.name, case.name] = rounds
    bench.recoveries = {"ours": [0.1, 0.2, 0.9], "Java, eager": [2.0]}
    bench.resident_mb = {"ours": 100.0, "eager": 500.0, "default": 50.0}
    bench.disk_mb_per_s = [300.0, 204.8, 100.0]
    return bench


def test_ratios_are_of_medians_against_the_better_setting_of_java() -> None:
    found, missing = made_up().ratios()
    assert not missing
    ratios = {ratio.name: ratio.value for ratio in found}
    assert ratios["adds_per_s_64_1KB_over_java"] == 1.0
    assert ratios["add_p50_1_outstanding_over_java_eager"] == 1.0
    assert ratios["add_p50_1_outstanding_over_java_default"] == 0.25
    assert ratios["add_p99_64_outstanding_over_java"] == 2.0
    assert ratios["bookie_resident_memory_over_java"] == 0.2
    assert ratios["cpu_us_per_entry_1024_over_java"] == 1.0
    assert ratios["recovery_10000_entries_times_faster_than_java"] == 10.0


def test_processor_time_of_a_row_is_by_process_and_by_user_and_system() -> None:
    row = made_up().row(ledger.OURS, ledger.ADD_1024)
    assert list(row.cpu_us.values()) == [1.0, 1.0, 2.0, 1.0]
    assert row.per_s == 1_000.0


def test_a_ratio_whose_figures_were_left_out_is_named_and_others_are_printed() -> None:
    bench = made_up()
    del bench.measured[ledger.OURS.name, ledger.ADD_64.name]
    bench.recoveries[ledger.EAGER.name] = []
    found, missing = bench.ratios()
    assert len(found) == 12
    assert missing == [
        "ratio adds_per_s_64_1KB_over_java: not measured: add 1 KB, 64 outstanding, ours",
        "ratio add_p99_64_outstanding_over_java: not measured: add 1 KB, 64 outstanding, ours",
        "ratio recovery_10000_entries_times_faster_than_java: not measured: recovery, Java, eager",
    ]
    assert "ours" in bench.facts()["recovery of 10,000"]


def test_what_the_disk_takes_is_printed_in_kilobytes_a_second() -> None:
    assert made_up().facts()["disk alone"] == "205 MB/s a bookie, written twice: 200,000 KB a second"


@pytest.mark.nightly
@pytest.mark.processes
async def test_the_disk_alone_takes_bytes_twice_and_leaves_nothing(tmp_path: Path) -> None:
    assert await ledger_disk.mb_per_s(tmp_path, 0.05) > 0
    assert not list(tmp_path.iterdir())


async def test_a_pair_that_breaks_off_is_left_out_of_its_round_alone() -> None:
    bench = BreaksOff(NothingRuns(), Span(0.0, 1.0))
    await bench.round(1)
    assert bench.begun == [pair.name for pair in ledger.PAIRS]
    assert bench.left_out == [
        'round 1, Java, eager, from "add 1 KB, 64 outstanding" on: IllegalStateException: an operation failed'
    ]


@pytest.mark.bookkeeper
@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.timeout(600)
def test_the_quick_run_ends_with_a_ratio_for_every_goal(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.ledger", "--quick", "--json", str(found), "--directory", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = re.findall(r"^ratio (\w+) ([\d.]+) (<=|>=) ([\d.]+)$", ran.stdout, re.MULTILINE)
    assert len(lines) == 15
    assert [line[0] for line in lines] == [one["name"] for one in json.loads(found.read_text())["ratios"]]
    assert {path.name for path in tmp_path.iterdir()} == {found.name}  # what was measured on is gone
