"""What the command lines of benchmarks have in common: their options, a directory, the parts one after another, the report."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchmarks import machine, report
from benchmarks.report import Ratio, Row
from boki_common.runtime.process import loop_factory, tune_memory


class Findings(Protocol):
    """What parts found."""

    rows: list[Row]
    ratios: list[Ratio]
    facts: dict[str, str]
    series: dict[str, object]


def options(
    name: str,
    about: str,
    *,
    quick: str,
    parts: Collection[str],
    seconds: float,
    each: str = "workload",
    plots: str = "",
) -> argparse.ArgumentParser:
    """The options that all take; a benchmark adds its own."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help=f"{quick}: does it run at all")
    if parts:
        parser.add_argument("--only", nargs="+", choices=tuple(parts), metavar="PART", help=", ".join(parts))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=seconds, help=f"of each {each} in each round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the whole run, for comparing")
    if plots:
        parser.add_argument("--plots", type=Path, metavar="DIRECTORY", help=plots)
    parser.add_argument("--directory", type=Path, help="where data goes: its disk is what is measured")
    return parser


@contextmanager
def workplace(arguments: argparse.Namespace) -> Iterator[Path]:
    """A directory of the run, in a process that is tuned as a role's."""
    tune_memory()
    with tempfile.TemporaryDirectory(prefix="boki-bench-", dir=arguments.directory) as name:
        yield Path(name)


def run(parts: Iterable[str], part: Callable[[str], Awaitable[None]], directory: Path) -> dict[str, object]:
    """Runs parts by name; returns which machine they ran on."""
    facts = machine.facts(directory)

    async def run_all() -> None:
        for name in parts:
            sys.stderr.write(f"{name}\n")
            await part(name)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run_all())
    return facts


def show(name: str, what: str, arguments: argparse.Namespace, facts: dict[str, object], bench: Findings) -> None:
    """The report of a benchmark, and its file."""
    title = f"Boki: {what}, medians of {arguments.rounds} rounds"
    report.draw(title, {**machine.shown(facts), **bench.facts}, bench.rows, bench.ratios)
    if arguments.json:
        whole: dict[str, Any] = {"benchmark": name, "machine": facts}
        whole |= {"rounds": arguments.rounds, "seconds": arguments.seconds, "series": bench.series}
        report.write_json(arguments.json, whole, bench.rows, bench.ratios)
