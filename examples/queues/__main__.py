"""`python -m examples.queues`: the three loads, one after the other, and a report. Exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from boki_common.runtime.process import loop_factory
from examples.queues.trial import LOADS, Found, trial

SHOWN_FAULTS: Final = 20


def report(console: Console, found: dict[str, Found]) -> None:
    """What a person wants to know."""
    table = Table(box=None, pad_edge=False)
    table.add_column("producers : consumers")
    for name in ("acknowledged", "handled", "p50 ms", "p99 ms", "killed"):
        table.add_column(name, justify="right")
    for name, one in found.items():
        killed = ", ".join(f"{count} × {who}" for who, count in sorted(one.killed.items())) or "nobody"
        counts = (f"{one.acknowledged:,}", f"{one.handled:,}", f"{one.p50_ms:.1f}", f"{one.p99_ms:.0f}")
        table.add_row(name, *counts, killed)
    console.print()
    console.print(table)
    faults = [f"{name}: {fault}" for name, one in found.items() for fault in one.faults]
    if faults:
        console.print(f"\n[bold red]{len(faults):,} faults[/]")
        for fault in faults[:SHOWN_FAULTS]:
            console.print(f"  {fault}", markup=False)
    else:
        console.print("  [green]holds[/] no message that was acknowledged is lost, none was handled twice")


def main() -> int:
    """The entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.queues", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load and kills, each")
    parser.add_argument("--seed", type=int, default=1, help="of who is killed")
    parser.add_argument("--load", choices=sorted(LOADS), action="append", help="one of them; may be given again")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    found = {}
    for name in arguments.load or LOADS:
        console.print(f"{name}", style="bold")
        with (
            tempfile.TemporaryDirectory(prefix="boki-queues-") as made,
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            say = lambda text: console.print(text, style="dim")  # noqa: E731 - one line
            found[name] = runner.run(
                trial(LOADS[name], Path(made), seconds=arguments.seconds, seed=arguments.seed, say=say)
            )
    report(console, found)
    return 1 if any(one.faults for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
