"""`python -m examples.retwis`: the trial, and a report of it. Exit code 1 if anything is wrong."""

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
from examples.retwis.checks import DONE, REFUSED, UNKNOWN
from examples.retwis.trial import Found, trial

SHOWN_FAULTS: Final = 20
CHECKED: Final = (
    "no acknowledged user, follow or post is lost, none is there twice, nothing is there that nobody asked for",
    "names and users, followers and followees belong to each other, and counts are right",
    "timelines are complete, in the order of each client, and drop from their end only",
    "every read of a snapshot was whole",
)


def report(console: Console, found: Found) -> None:
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
    state = found.state
    killed = ", ".join(f"{count} × {name}" for name, count in sorted(found.killed.items())) or "nobody"
    console.print(
        f"\n{len(state.users):,} users, {len(state.posts):,} posts; killed with kill -9: {killed}; {found.seconds:.0f} s"
    )
    if found.faults:
        console.print(f"\n[bold red]{len(found.faults):,} faults[/]")
        for fault in found.faults[:SHOWN_FAULTS]:
            console.print(f"  {fault}", markup=False)
    else:
        for sentence in CHECKED:
            console.print(f"  [green]holds[/] {sentence}")


def main() -> int:
    """The entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.retwis", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of load and kills")
    parser.add_argument("--seed", type=int, default=1, help="of who is killed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="for data, logs and notes; kept")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    with (
        tempfile.TemporaryDirectory(prefix="boki-retwis-") as made,
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
