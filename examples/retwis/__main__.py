"""`python -m examples.retwis`: the trial, and a report of it. Exit code 1 if anything is wrong."""

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
    "no acknowledged user, follow or post is lost, none is there twice, nothing is there that nobody asked for",
    "names and users, followers and followees belong to each other, and counts are right",
    "timelines are complete, in the order of each client, and drop from their end only",
    "every read of a snapshot was whole",
)


def report(console: Console, found: TrialResult) -> None:
    """What a person wants to know."""
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
    """The entry point; returns the exit code."""
    parser = trial_command.options("retwis", __doc__, seconds=30.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="for data, logs and notes; kept")
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
