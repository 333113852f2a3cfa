"""`python -m examples.orders`: the trial, and a report of it. Exit code 1 if anything is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from examples import trial_command
from examples.orders.app import ITEMS
from examples.orders.trial import trial

CHECKED: Final = (
    "every order that was acknowledged was handled, none twice, none that nobody gave",
    "every order has one result: its workflow's, written once",
    "the stock adds up: what is left, what was sold and what was sent",
)


def main() -> int:
    """The entry point; returns the exit code."""
    parser = trial_command.options("orders", __doc__, seconds=20.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="for data and logs; kept")
    asked = parser.parse_args()
    console = trial_command.console()

    def say(text: str) -> None:
        console.print(text, style="dim")

    found = trial_command.run(
        "orders",
        asked.directory,
        lambda place: trial(place, seconds=asked.seconds, seed=asked.seed, workers=asked.workers, say=say),
    )
    state = found.state
    console.print(f"\n{found.orders:,} orders, {found.acknowledged:,} acknowledged, {len(state.receipts):,} handled")
    console.print(
        ", ".join(f"{item}: {state.sold.get(item, 0)} sold, {state.stock.get(item, 0)} left" for item in ITEMS)
    )
    console.print(f"killed with kill -9: {trial_command.killed_of(found.killed)}; {found.seconds:.0f} s")
    return trial_command.show(console, found.faults, CHECKED)


if __name__ == "__main__":
    sys.exit(main())
