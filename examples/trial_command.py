"""The command line of the trials: their options, the run, and how a person is shown what was wrong or holds."""

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
    """The options that all take; a trial adds its own."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{name}", description=about)
    parser.add_argument("--seconds", type=float, default=seconds, help=f"of load and kills{each}")
    parser.add_argument("--seed", type=int, default=1, help="of what is asked, and of who is killed")
    return parser


def console() -> Console:
    """Where a report goes."""
    return Console(highlight=False, soft_wrap=True)


def run(name: str, directory: Path | None, made: Callable[[Path], Awaitable[T]]) -> T:
    """What a trial found; in a directory of its own that does not stay, unless one is given."""

    async def main(where: Path) -> T:
        return await made(where)

    with (
        tempfile.TemporaryDirectory(prefix=f"boki-{name}-") as temporary,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        return runner.run(main(directory or Path(temporary)))


def killed_of(killed: Mapping[str, int]) -> str:
    """Who was killed how often."""
    return ", ".join(f"{count} × {name}" for name, count in sorted(killed.items())) or "nobody"


def show(console: Console, faults: Sequence[str], holds: Sequence[str]) -> int:
    """What is wrong, or what holds. Returns the exit code."""
    if not faults:
        for sentence in holds:
            console.print(f"  [green]holds[/] {sentence}")
        return 0
    console.print(f"\n[bold red]{len(faults):,} faults[/]")
    for fault in faults[:SHOWN_FAULTS]:
        console.print(f"  {fault}", markup=False)
    return 1
