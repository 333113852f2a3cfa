"""Findings for people: text for a terminal, and a page with the calls around each finding on a line of time.

The page is one HTML file with inline pictures (SVG), no script and nothing from elsewhere: it can be attached and mailed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from boki_sim.checkers.findings import Finding, name_of
from boki_sim.checkers.history import Operation

CALLS_SHOWN: Final = 200
"""Calls on one picture beside those of the finding, the nearest in time."""

_WIDTH: Final = 1100
_LEFT: Final = 110
_ROW: Final = 26
_BAR: Final = 16
_COLOURS: Final = {"append": "#4878a8", "read": "#6a9f58", "trim": "#967662", "token": "#8a6fa8"}
_BLAMED: Final = "#d1605e"
_LEGEND: Final = "Bars run from a call's begin to its return; those of a finding are red. Hover over a bar to read it."
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1140px;margin:2em auto;color:#222}"
    "svg{background:#fafafa;border:1px solid #ddd}text{font:11px system-ui,sans-serif}"
    "h2{margin-top:2em}ol li{margin:.3em 0}"
)


def as_text(findings: Sequence[Finding]) -> str:
    """Everything found, a paragraph each."""
    if not findings:
        return "nothing wrong"
    paragraphs = []
    for number, finding in enumerate(findings, start=1):
        steps = finding.text.replace("; ", ";\n   ")
        paragraphs.append(f"{number}. {finding.anomaly} (book {finding.book})\n   {steps}")
    return "\n\n".join(paragraphs)


def as_page(operations: Sequence[Operation], findings: Sequence[Finding], *, title: str) -> str:
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>',
        f"<h1>{escape(title)}</h1>",
        f"<p>{len(operations):,} calls, {len(findings)} findings. {_LEGEND}</p>",
    ]
    for number, finding in enumerate(findings, start=1):
        parts.append(f"<h2>{number}. {escape(finding.anomaly)}, book {escape(finding.book)}</h2>")
        parts.append("<ol>" + "".join(f"<li>{escape(step)}</li>" for step in finding.text.split("; ")) + "</ol>")
        parts.extend(_picture(operations, finding))
    return "\n".join(parts) + "\n"


def _picture(operations: Sequence[Operation], finding: Finding) -> Iterator[str]:
    begin = min(call.start for call in finding.calls)
    end = max(call.start if call.end is None else call.end for call in finding.calls)
    margin = max((end - begin) / 20, 1e-6)
    begin, end = begin - margin, end + margin
    beside = [
        one
        for one in operations
        if one.book in (finding.book, "")
        and one.kind in _COLOURS
        and one.start <= end
        and (one.end is None or one.end >= begin)
        and one not in finding.calls
    ]
    middle = (begin + end) / 2
    beside.sort(key=lambda one: abs(one.start - middle))
    shown = sorted([*finding.calls, *beside[:CALLS_SHOWN]], key=lambda one: (one.client, one.start))
    rows = {client: row for row, client in enumerate(dict.fromkeys(one.client for one in shown))}
    height = _ROW * len(rows) + 30
    scale = (_WIDTH - _LEFT - 10) / (end - begin)
    yield f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">'
    for client, row in rows.items():
        yield f'<text x="6" y="{row * _ROW + 18}">{escape(client[:16])}</text>'
    for one in shown:
        left = _LEFT + max(one.start - begin, 0) * scale
        right = _LEFT + (min(end if one.end is None else one.end, end) - begin) * scale
        blamed = one in finding.calls
        colour = _BLAMED if blamed else _COLOURS[one.kind]
        open_end = ' fill-opacity="0.4"' if one.end is None else ""
        yield (
            f'<rect x="{left:.1f}" y="{rows[one.client] * _ROW + 6}" width="{max(right - left, 2):.1f}" height="{_BAR}" '
            f'rx="2" fill="{colour}"{open_end}><title>{escape(name_of(one))}</title></rect>'
        )
        if blamed:
            yield f'<text x="{left + 3:.1f}" y="{rows[one.client] * _ROW + 18}" fill="#fff">{escape(_label(one))}</text>'
    yield f'<text x="{_LEFT}" y="{height - 6}">{begin:.6g} s</text>'
    yield f'<text x="{_WIDTH - 10}" y="{height - 6}" text-anchor="end">{end:.6g} s</text></svg>'


def _label(one: Operation) -> str:
    if one.kind == "append":
        return f"+{one.data}"
    if one.kind == "trim":
        return f"trim {one.before}"
    if one.kind == "token":
        return f"from {one.of}"
    return f"read {one.rows[-1][0] if one.rows else 'nothing'}"
