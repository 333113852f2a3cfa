"""Command `python -m examples.queues`; see the package."""

from __future__ import annotations

import sys
from functools import partial

from rich.console import Console
from rich.table import Table

from examples import trial_command
from examples.queues.trial import LOADS, TrialResult, trial


def report(console: Console, found: dict[str, TrialResult]) -> None:
    """Print messages, latencies and kills by load."""
    table = Table(box=None, pad_edge=False)
    table.add_column("producers : consumers")
    for name in ("acknowledged", "handled", "p50 ms", "p99 ms", "killed"):
        table.add_column(name, justify="right")
    for name, one in found.items():
        counts = (f"{one.acknowledged:,}", f"{one.handled:,}", f"{one.p50_ms:.1f}", f"{one.p99_ms:.0f}")
        table.add_row(name, *counts, trial_command.killed_of(one.killed))
    console.print()
    console.print(table)


def main() -> int:
    """Run the loads with the options of the command line, and return the exit code."""
    parser = trial_command.options(
        "queues",
        "Run the queue loads of Boki's evaluation while processes are killed.",
        seconds=20.0,
        each=" of each load",
    )
    parser.add_argument(
        "--load", choices=sorted(LOADS), action="append", help="run only this load; repeat the option for more"
    )
    asked = parser.parse_args()
    console = trial_command.console()

    def say(text: str) -> None:
        console.print(text, style="dim")

    found = {}
    for name in asked.load or LOADS:
        console.print(f"{name}", style="bold")
        run = partial(trial, LOADS[name], seconds=asked.seconds, seed=asked.seed, say=say)
        found[name] = trial_command.run("queues", None, run)
    report(console, found)
    faults = [f"{name}: {fault}" for name, one in found.items() for fault in one.faults]
    return trial_command.show(console, faults, ["no acknowledged message is lost, and none was handled twice"])


if __name__ == "__main__":
    sys.exit(main())
