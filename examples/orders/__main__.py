"""`python -m examples.orders`: the trial, and a report of it. Exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console

from boki_common.runtime.process import loop_factory
from examples.orders.app import ITEMS
from examples.orders.trial import Found, trial

SHOWN_FAULTS: Final = 20
CHECKED: Final = (
    "every order that was acknowledged was handled, none twice, none that nobody gave",
    "every order has one result: its workflow's, written once",
    "the stock adds up: what is left, what was sold and what was sent",
)


def report(console: Console, found: Found) -> None:
    """What a person wants to know."""
    killed = ", ".join(f"{count} × {name}" for name, count in sorted(found.killed.items())) or "nobody"
    state = found.state
    console.print(f"\n{found.orders:,} orders, {found.acknowledged:,} acknowledged, {len(state.receipts):,} handled")
    console.print(
        ", ".join(f"{item}: {state.sold.get(item, 0)} sold, {state.stock.get(item, 0)} left" for item in ITEMS)
    )
    console.print(f"killed with kill -9: {killed}; {found.seconds:.0f} s")
    if found.faults:
        console.print(f"\n[bold red]{len(found.faults):,} faults[/]")
        for fault in found.faults[:SHOWN_FAULTS]:
            console.print(f"  {fault}", markup=False)
    else:
        for sentence in CHECKED:
            console.print(f"  [green]holds[/] {sentence}")


def main() -> int:
    """The entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of orders and kills")
    parser.add_argument("--seed", type=int, default=1, help="of who is killed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="for data and logs; kept")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    with (
        tempfile.TemporaryDirectory(prefix="boki-orders-") as made,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        found = runner.run(
            trial(
                arguments.directory or Path(made),
                seconds=arguments.seconds,
                seed=arguments.seed,
                workers=arguments.workers,
                say=lambda text: console.print(text, style="dim"),
            )
        )
    report(console, found)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
