"""What benchmarks on clusters of their own share: rounds, rows and ratios."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import report
from benchmarks.closed_loop import Workload, closed_loop
from benchmarks.report import Ratio, Row
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.runtime.awake_cores import awake_cores, may_keep_awake

Loads: TypeAlias = Mapping[str, tuple[Workload, Any, LocalCluster]]
"""By name: what is done, by which client, in which cluster."""


class Bench:
    """What the parts share: how long, how often, and what they found."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        self.rounds: int = arguments.rounds
        self.seconds: float = arguments.seconds
        self.quick: bool = arguments.quick
        self.plots: Path | None = arguments.plots
        self.directory = directory
        self.rows: list[Row] = []
        self.ratios: list[Ratio] = []
        self.facts: dict[str, str] = {}
        self.series: dict[str, object] = {}

    def cluster(self, name: str, **options: Any) -> LocalCluster:
        return LocalCluster(self.directory / name, bookies=3, unix_sockets=True, **options)

    async def compare(self, workloads: Loads, *, rounds: int | None = None) -> dict[str, list[Row]]:
        """Interleaved rounds; all rows of each workload, whose medians go into the table."""
        found: dict[str, list[Row]] = {name: [] for name in workloads}
        for _ in range(rounds or self.rounds):
            for name, (workload, client, cluster) in workloads.items():
                found[name].append(await closed_loop(workload, client, cluster.pids, self.seconds))
        self.rows += [report.median_row(rows) for rows in found.values()]
        return found

    async def compare_awake(self, workloads: Loads) -> dict[str, list[Row]]:
        """The same while no core of the machine may sleep; nothing where that is not ours to wish."""
        if not may_keep_awake():
            return {}
        renamed = {
            key: (workload._replace(name=f"{workload.name}, cores awake"), client, cluster)
            for key, (workload, client, cluster) in workloads.items()
        }
        with awake_cores():
            return await self.compare(renamed)

    def ratio(self, name: str, value: float, comparison: Any, goal: float) -> None:
        self.ratios.append(Ratio(name, value, comparison, goal))


def over(numerator: Sequence[Row], denominator: Sequence[Row], figure: Callable[[Row], float]) -> float:
    """The median over rounds of one figure beside the other's of the same round."""
    return statistics.median(figure(a) / figure(b) for a, b in zip(numerator, denominator, strict=True))


def rate(row: Row) -> float:
    return row.per_s


def p50(row: Row) -> float:
    return row.p50_ms
