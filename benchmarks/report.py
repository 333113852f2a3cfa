"""How every benchmark of the project shows what it found: a table, the ratios against their goals, JSON, a plot.

    ratio NAME VALUE <=|>= GOAL

is one line per goal, at the end of the output, for programs that compare runs. A goal in absolute units has the unit in its
name. Falling short changes nothing about the exit code: a figure of one run on one machine is no test.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console


class Ratio(NamedTuple):
    """A figure and its goal."""

    name: str
    value: float
    comparison: Literal["<=", ">="]
    goal: float

    @property
    def reached(self) -> bool:
        return self.value <= self.goal if self.comparison == "<=" else self.value >= self.goal

    def line(self) -> str:
        return f"ratio {self.name} {plain(self.value)} {self.comparison} {plain(self.goal)}"


class Row(NamedTuple):
    """One line of the table: medians over all rounds."""

    name: str
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: Mapping[str, float]
    """Processor time per record, by process."""
    p90_ms: float | None = None
    mean_ms: float | None = None

    @classmethod
    def of(cls, name: str, per_s: float, taken_s: Iterable[float], cpu_us: Mapping[str, float]) -> Row:
        """Return the row of latencies, in seconds, of which there is one at least."""
        ordered = sorted(taken_s)
        p50, p90, p99 = (ordered[len(ordered) * share // 100] * 1000 for share in (50, 90, 99))
        return cls(name, per_s, p50, p99, cpu_us, p90, statistics.fmean(ordered) * 1000)


def plain(value: float) -> str:
    """Four significant digits, never in exponents."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def median_row(rows: Sequence[Row]) -> Row:
    """The median of each column over the rounds of one workload."""
    processes = rows[0].cpu_us
    return Row(
        rows[0].name,
        statistics.median(row.per_s for row in rows),
        statistics.median(row.p50_ms for row in rows),
        statistics.median(row.p99_ms for row in rows),
        {name: statistics.median(row.cpu_us[name] for row in rows) for name in processes},
        _median([row.p90_ms for row in rows]),
        _median([row.mean_ms for row in rows]),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def draw(title: str, facts: Mapping[str, str], rows: Sequence[Row], ratios: Sequence[Ratio]) -> None:
    """The table for a person, then the ratios for everybody."""
    console = Console(highlight=False)
    console.print(f"[bold]{title}[/bold]")
    for name, value in facts.items():
        console.print(f"  [dim]{name:>22}[/dim]  {value}")
    if rows:
        _draw_rows(console, rows)
    console.print()
    for ratio in ratios:
        # soft_wrap: a line for programs stays one line on a narrow terminal.
        console.print(f"[{'green' if ratio.reached else 'yellow'}]{ratio.line()}[/]", soft_wrap=True)


def _draw_rows(console: Console, rows: Sequence[Row]) -> None:
    processes = list(rows[0].cpu_us)
    width = max(len(row.name) for row in rows)
    headings = ("per s", "p50 ms", "p90 ms", "p99 ms", "mean ms", "CPU µs", *processes)
    _line(console, " " * width, headings, style="dim")
    for row in rows:
        cpu = [plain(sum(row.cpu_us.values())), *(plain(row.cpu_us[name]) for name in processes)]
        p90, mean = ("–" if value is None else f"{value:.3f}" for value in (row.p90_ms, row.mean_ms))
        latencies = [f"{row.p50_ms:.3f}", p90, f"{row.p99_ms:.2f}", mean]
        _line(console, row.name.ljust(width), [f"{row.per_s:,.0f}", *latencies, *cpu])
    console.print("[dim]CPU µs: processor time a record, over all processes, then by process[/dim]", soft_wrap=True)


def _line(console: Console, name: str, cells: Sequence[str], *, style: str = "") -> None:
    # A line stays one line, however narrow the terminal is, or where there is none.
    console.print(name + "".join(cell.rjust(max(9, len(cell) + 1)) for cell in cells), style=style, soft_wrap=True)


def write_json(path: Path, content: Mapping[str, object], rows: Sequence[Row], ratios: Sequence[Ratio]) -> None:
    """One run, for comparing with others."""
    whole = {
        **content,
        "rows": [row._asdict() for row in rows],
        "ratios": [{**ratio._asdict(), "reached": ratio.reached} for ratio in ratios],
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")


def plot(path: Path, title: str, rows: Sequence[Row], ratios: Sequence[Ratio]) -> None:
    """Rates and latencies as bars, and how far each goal is reached; the suffix of the path says the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    rates, latencies, goals = figure.subplots(1, 3)
    names = [row.name for row in rows]
    rates.barh(names, [row.per_s for row in rows], color="#4c78a8")
    rates.set(xscale="log", xlabel="per second")
    latencies.barh(names, [row.p99_ms for row in rows], color="#f2cf8f", label="p99")
    latencies.barh(names, [row.p50_ms for row in rows], color="#e08b2f", label="p50")
    latencies.set(xscale="log", xlabel="ms")
    latencies.tick_params(labelleft=False)
    latencies.legend()
    share = [ratio.value / ratio.goal if ratio.comparison == ">=" else ratio.goal / ratio.value for ratio in ratios]
    colours = ["#59a14f" if ratio.reached else "#e15759" for ratio in ratios]
    goals.barh([ratio.name.replace("_", " ") for ratio in ratios], share, color=colours)
    goals.axvline(1.0, color="black", linewidth=0.8)
    goals.set(xlim=(0, max(2.0, min(3.0, max(share)))), xlabel="goal = 1, more is better")
    goals.tick_params(axis="y", labelsize=7)
    for axes in (rates, latencies, goals):
        axes.invert_yaxis()
    figure.savefig(path, dpi=120)
