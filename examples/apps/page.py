"""The status page of a trial: one HTML file that reloads itself every second while the trial runs. Pure.

    file.write_text(page(status))

It shows the rate of answers as a chart, latencies by operation, kills, and the result of each check.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

REFRESH_S: Final = 1
WIDTH: Final = 640
HEIGHT: Final = 120
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:44rem;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.15rem 1rem .15rem 0;text-align:right}td:first-child,th:first-child{text-align:left}"
    ".holds{color:#176b2c}.wrong{color:#a11}small{color:#666}svg{background:#f6f6f4;width:100%}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}svg{background:#222}}"
)


class OperationRow(NamedTuple):
    """Answers to one operation: their number, how many were refusals, and their latencies."""

    operation: str
    answers: int
    refused: int
    p50_ms: float
    p99_ms: float


class SnapshotCheck(NamedTuple):
    """Result of a check of all rows.

    Attributes:
        after_s: time since the trial began.
        rows: number of rows in the snapshot.
        faults: sentences; [] if every promise held.
    """

    after_s: float
    rows: int
    faults: Sequence[str]


class TrialStatus(NamedTuple):
    """Everything that the page shows.

    Attributes:
        name: title of the page.
        seconds: time since the trial began.
        rates: answers in each second so far.
        operations: answers by operation.
        failed_attempts: attempts without an answer, which were repeated.
        killed: kinds of processes, and how many of each were killed.
        checks: checks so far, the oldest first.
        holds: the promises that are checked.
        ended: whether the trial has ended, so that the page need not reload.
    """

    name: str
    seconds: float
    rates: Sequence[int]
    operations: Sequence[OperationRow]
    failed_attempts: int
    killed: Sequence[tuple[str, int]]
    checks: Sequence[SnapshotCheck]
    holds: Sequence[str]
    ended: bool


def page(now: TrialStatus) -> str:
    """Return the HTML of the page."""
    refresh = "" if now.ended else f'<meta http-equiv="refresh" content="{REFRESH_S}">'
    killed = ", ".join(f"{count} × {escape(kind)}" for kind, count in now.killed) or "none yet"
    state = "ended" if now.ended else "running"
    rate = now.rates[-1] if now.rates else 0
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}'
        f'<meta name="viewport" content="width=device-width"><title>{escape(now.name)}</title><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(now.name)}</h1><p>{state}, {now.seconds:.0f} s; {rate:,} requests in the last second; "
        f"{now.failed_attempts:,} attempts without an answer were repeated; killed with kill -9: {killed}</p>"
        f"{_chart(now.rates)}{_operations(now.operations)}{_checks(now)}</body></html>\n"
    )


def _chart(rates: Sequence[int]) -> str:
    top = max([*rates, 1])
    step = WIDTH / max(len(rates) - 1, 1)
    points = " ".join(
        f"{number * step:.1f},{HEIGHT - rate / top * (HEIGHT - 8):.1f}" for number, rate in enumerate(rates)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="requests a second, up to {top:,}">'
        f'<polyline points="{points}" fill="none" stroke="#2a6fb0" stroke-width="2"/></svg>'
        f"<small>requests a second, up to {top:,}</small>"
    )


def _operations(rows: Sequence[OperationRow]) -> str:
    body = "".join(
        f"<tr><td>{escape(row.operation)}</td><td>{row.answers:,}</td><td>{row.refused:,}</td>"
        f"<td>{row.p50_ms:.1f}</td><td>{row.p99_ms:.1f}</td></tr>"
        for row in rows
    )
    head = "<tr><th>requests</th><th>answered</th><th>of these refused</th><th>p50 ms</th><th>p99 ms</th></tr>"
    return f"<table>{head}{body}</table>"


def _checks(now: TrialStatus) -> str:
    parts = ["<h2>Promises</h2>"]
    for check in now.checks:
        kind, text = ("wrong", "; ".join(map(escape, check.faults))) if check.faults else ("holds", "all hold")
        parts.append(f'<p class="{kind}">after {check.after_s:.0f} s, {check.rows:,} rows: {text}</p>')
    parts.append("<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in now.holds) + "</ul>")
    return "".join(parts)
