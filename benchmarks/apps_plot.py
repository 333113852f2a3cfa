"""Latency over the rate, as the evaluation's figure 11 (a and b) has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plot(directory: Path, series: Mapping[str, Any]) -> None:
    """Writes `applications.png`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(6.5 * len(series), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, kinds) in zip(figure.subplots(1, len(series), squeeze=False)[0], series.items(), strict=True):
        for kind, points in kinds.items():
            rates = [point[0] for point in points]
            (line,) = axes.plot(rates, [point[1] for point in points], marker="o", label=kind)
            axes.plot(rates, [point[2] for point in points], linestyle=":", color=line.get_color())
        axes.set(title=name, xlabel="requests per second", ylabel="ms; dotted: p99", yscale="log")
        axes.legend(fontsize=8)
    figure.savefig(directory / "applications.png", dpi=120)
