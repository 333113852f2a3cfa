"""The command line of trials: common options, a run in a temporary directory, and the report of faults or promises.

`examples.retwis`, `examples.orders`, `examples.queues`, `examples.apps.command` and `itests.chaos` are built on it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console

from boki_common.runtime.process import loop_factory

SHOWN_FAULTS: Final = 20

T = TypeVar("T")


def options(name: str, about: str | None, *, seconds: float, each: str = "") -> argparse.ArgumentParser:
    """Return a parser with the options of all trials.

    Args:
        name: name of the command in `examples`.
        about: description for `--help`.
        seconds: default duration.
        each: addition to the help text of the duration, such as " of each load".
    """
    parser = argparse.ArgumentParser(prog=f"python -m examples.{name}", description=about)
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"duration of load and kills{each} (default: %(default)g)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of requests and kills (default: %(default)s)")
    return parser


def console() -> Console:
    """Return the console that prints a report."""
    return Console(highlight=False, soft_wrap=True)


def run(name: str, directory: Path | None, trial: Callable[[Path], Awaitable[T]]) -> T:
    """Run a trial in a directory, by default a temporary one, and return its result."""

    async def main(where: Path) -> T:
        return await trial(where)

    with (
        tempfile.TemporaryDirectory(prefix=f"boki-{name}-") as temporary,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        return runner.run(main(directory or Path(temporary)))


def killed_of(killed: Mapping[str, int]) -> str:
    """Return kills by kind as text, such as "2 × bookie, 1 × engine"."""
    return ", ".join(f"{count} × {name}" for name, count in sorted(killed.items())) or "none"


def show(console: Console, faults: Sequence[str], holds: Sequence[str]) -> int:
    """Print up to SHOWN_FAULTS faults, or the promises that hold; return the exit code."""
    if not faults:
        for sentence in holds:
            console.print(f"  [green]holds[/] {sentence}")
        return 0
    console.print(f"\n[bold red]{len(faults):,} fault{'' if len(faults) == 1 else 's'}[/]")
    for fault in faults[:SHOWN_FAULTS]:
        console.print(f"  {fault}", markup=False)
    return 1
