"""Command `python -m examples.retwis`; see the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from examples import trial_command
from examples.retwis.checks import DONE, REFUSED, UNKNOWN
from examples.retwis.trial import TrialResult, trial

CHECKED: Final = (
    "no acknowledged user, follow or post is lost or doubled, and there is none that was never requested",
    "names match users, followers match followees, and counts are right",
    "timelines are complete, keep the order of each client, and drop their oldest posts only",
    "every snapshot read was consistent",
)


def report(console: Console, found: TrialResult) -> None:
    """Print calls by operation and outcome, the size of the network, and the kills."""
    table = Table(box=None, pad_edge=False)
    table.add_column("calls")
    for name in ("acknowledged", "refused", "no answer"):
        table.add_column(name, justify="right")
    for operation in sorted({operation for operation, _ in found.calls}):
        counts = (found.calls[operation, outcome] for outcome in (DONE, REFUSED, UNKNOWN))
        table.add_row(operation, *(f"{count:,}" for count in counts))
    console.print()
    console.print(table)
    state, killed = found.state, trial_command.killed_of(found.killed)
    console.print(
        f"\n{len(state.users):,} users, {len(state.posts):,} posts; killed with kill -9: {killed}; {found.seconds:.0f} s"
    )


def main() -> int:
    """Run a trial with the options of the command line, and return the exit code."""
    parser = trial_command.options("retwis", "Run Retwis on a cluster whose processes are killed.", seconds=30.0)
    parser.add_argument("--workers", type=int, default=2, help="number of worker processes (default: %(default)s)")
    parser.add_argument(
        "--directory", type=Path, help="directory for data, logs and notes, which is kept; by default a temporary one"
    )
    asked = parser.parse_args()
    console = trial_command.console()

    def say(text: str) -> None:
        console.print(text, style="dim")

    found = trial_command.run(
        "retwis",
        asked.directory,
        lambda place: trial(place, seconds=asked.seconds, seed=asked.seed, workers=asked.workers, say=say),
    )
    report(console, found)
    return trial_command.show(console, found.faults, CHECKED)


if __name__ == "__main__":
    sys.exit(main())
