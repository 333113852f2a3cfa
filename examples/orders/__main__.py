"""Command `python -m examples.orders`; see the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from examples import trial_command
from examples.orders.app import ITEMS
from examples.orders.checks import OWN_S, ends
from examples.orders.trial import TrialResult, trial

CHECKED: Final = (
    "every acknowledged order was handled, none twice, and none that was never pushed",
    "every good order has one result, that of its workflow, written once",
    "the stock adds up: items left, sold and sent",
    f"no good order took longer than {OWN_S:g} s; each bad order ended as planned",
)


def report(console: Console, found: TrialResult) -> None:
    """Print the figures of a trial and the end of each bad order."""
    state = found.state
    console.print(
        f"\n{len(found.orders):,} orders, {found.acknowledged:,} acknowledged: {len(state.receipts):,} handled, "
        f"{len(state.given_up):,} dead letters"
    )
    console.print(
        ", ".join(f"{item}: {state.sold.get(item, 0)} sold, {state.stock.get(item, 0)} left" for item in ITEMS)
    )
    good = sorted(state.took_s.get(order.id, 0.0) for order in found.orders if not order.wrong) or [0.0]
    console.print(
        f"good orders from push to result: p50 {good[len(good) // 2]:.1f} s, p99 {good[int(len(good) * 0.99)]:.1f} s,"
        f" slowest {good[-1]:.1f} s"
    )
    console.print(
        f"killed with kill -9: {trial_command.killed_of(found.killed)}; the trial took {found.seconds:.0f} s\n"
    )
    console.print("How each order with bad code ended, and the command that would show more while the cluster runs:")
    for end in ends(found.orders, state):
        console.print(f"  {end.order}: {end.what.partition('. ')[0]}\n    {end.look}", markup=False)
    console.print()


def main() -> int:
    """Run a trial with the options of the command line, and return the exit code."""
    parser = trial_command.options("orders", "Run a shop on a cluster whose processes are killed.", seconds=42.0)
    parser.add_argument("--workers", type=int, default=2, help="number of worker processes (default: %(default)s)")
    parser.add_argument(
        "--directory", type=Path, help="directory for data and logs, which is kept; by default a temporary one"
    )
    asked = parser.parse_args()
    console = trial_command.console()

    def say(text: str) -> None:
        console.print(text, style="dim")

    found = trial_command.run(
        "orders",
        asked.directory,
        lambda place: trial(place, seconds=asked.seconds, seed=asked.seed, workers=asked.workers, say=say),
    )
    report(console, found)
    if found.faults and asked.directory is None:
        console.print("To keep the logs of all processes, run it again with --directory DIRECTORY.")
    return trial_command.show(console, found.faults, CHECKED)


if __name__ == "__main__":
    sys.exit(main())
