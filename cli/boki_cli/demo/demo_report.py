"""How the demo shows what it does and what came of it, on a terminal, in a log of a build, or as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rich import progress as rich_progress
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from boki_cli.demo.stream_check import CheckResult
from boki_cli.records.ingest import BATCH_RECORDS, IN_FLIGHT
from boki_cli.wording import size_text

NEXT: Final = (
    (".venv/bin/boki dev", "a log of your own, data in ./.boki"),
    (".venv/bin/boki append FILE --book B", "each line a record; --tag-field F tags it"),
    (".venv/bin/boki read --book B --tag F/value", "reads them back; tail -f follows"),
    (".venv/bin/boki status", "who is up, how far"),
    ("make run INPUT=path", "this, with a JSON lines or CSV file of yours"),
)


@dataclass(slots=True)
class DemoReport:
    """What happened, in the order of the report."""

    source: str
    licence: str
    records: int = 0
    data_bytes: int = 0
    append_s: float = 0.0
    records_per_s: float = 0.0
    batch_records: int = BATCH_RECORDS
    batch_p50_ms: float = 0.0
    batch_p99_ms: float = 0.0
    single_p50_ms: float = 0.0
    single_p99_ms: float = 0.0
    killed: list[str] = field(default_factory=list)
    restart_s: float = 0.0
    records_read: int = 0
    read_s: float = 0.0
    total_s: float = 0.0
    checks: list[CheckResult] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


Counting = tuple[rich_progress.Progress, rich_progress.TaskID]
"""A bar, and what of it tells how far a step is."""


class Steps:
    """Prints each step once it is done; on a terminal shows the one under way."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def note(self, text: str) -> None:
        self.console.print(f"  [dim]{text}[/dim]")

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        with self.console.status(text):
            yield

    @asynccontextmanager
    async def doing(self, text: str) -> AsyncIterator[None]:
        with self.console.status(text):
            yield
        self.console.print(f"[green]✓[/green] {text}")

    @asynccontextmanager
    async def counting(self, text: str, total: int) -> AsyncIterator[Counting]:
        bar = rich_progress.Progress(
            rich_progress.TextColumn("[bold]{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with bar:
            yield bar, bar.add_task(text, total=total)
        self.console.print(f"[green]✓[/green] {text}")


def joined_by_field(results: Sequence[CheckResult]) -> list[CheckResult]:
    """One result for all tags of a field: how many streams and records, and the first difference."""
    fields: dict[str, list[CheckResult]] = {}
    for result in results:
        fields.setdefault(result.name.partition("/")[0], []).append(result)
    return [
        CheckResult(
            f"by {field}, {len(group)} tags",
            sum(result.records for result in group),
            next((f"{result.name}: {result.difference}" for result in group if not result.holds), ""),
        )
        for field, group in fields.items()
    ]


def as_object(report: DemoReport) -> dict[str, Any]:
    shown = dataclasses.asdict(report)
    shown["holds"] = report.holds
    shown["checks"] = [{**check._asdict(), "holds": check.holds} for check in report.checks]
    return shown


def draw(report: DemoReport, console: Console) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", justify="right")
    facts.add_column()
    licence = f" (licence {report.licence})" if report.licence else ""
    batch = f"a batch of {report.batch_records}, {IN_FLIGHT} in flight"
    read_rate = report.records_read / max(report.read_s, 1e-9)
    for name, value in (
        ("input", f"{report.source}{licence}"),
        ("appended", f"{report.records:,} records, {size_text(report.data_bytes)}, on at least 2 of 3 bookies"),
        ("rate", f"{report.records_per_s:,.0f} records/s over {report.append_s:.1f} s, a bookie killed on the way"),
        ("latency", f"p50 {report.batch_p50_ms:.1f} ms, p99 {report.batch_p99_ms:.1f} ms {batch}"),
        ("", f"p50 {report.single_p50_ms:.2f} ms, p99 {report.single_p99_ms:.2f} ms a record, one at a time"),
        ("killed", "\n".join(f"{line} (SIGKILL)" for line in report.killed)),
        ("restarted", f"all five processes; first read after {report.restart_s:.1f} s"),
        ("read back", f"{report.records_read:,} records in {report.read_s:.1f} s, {read_rate:,.0f} records/s"),
        ("in all", f"{report.total_s:.0f} s"),
    ):
        facts.add_row(name, value)
    console.print(Panel(facts, title="Boki: the whole path", expand=False))
    checks = Table(box=None, show_header=False, padding=(0, 2))
    for check in report.checks:
        mark = "[green]✓[/green]" if check.holds else "[red]✗[/red]"
        checks.add_row(mark, check.name, f"{check.records:,} records", check.difference or check.held)
    console.print(checks)
    if report.holds:
        console.print("\n[bold green]Nothing was lost.[/bold green] Try next:")
        for tried, what in NEXT:
            console.print(f"  [bold]{tried:<33}[/bold] {what}")
    else:
        console.print("\n[bold red]A check failed.[/bold red] Run again with --directory DIR and look at DIR/logs.")
