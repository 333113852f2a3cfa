"""The timeline of a workflow as a picture: a row for each span, with a bar on an axis that all rows share. Pure.

The text of a row says all that its bar shows. The colours are those of `flow.css`; a shape or a word shows the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from boki_gateway.pages.markup import Node, address, make
from boki_gateway.pages.parts import moment
from boki_gateway.pages.texts import printable, span_text
from bokiflow_tools.drawing import PATH, place
from bokiflow_tools.timeline import MARKS, USES, WIDTH, Axis, Span, Stretch, Timeline, Use, axis, stretches
from bokiflow_tools.wording import UNENDED, span_detail, span_name, span_took

ROWS: Final = 200
"""Rows of one page. A longer history is shown in parts, the newest first, with links to the others."""
TICKS: Final = (0, 25, 50, 75, 100)
LEAST: Final = 0.5
"""Width of the shortest bar, in per cent."""
_USES: Final[dict[Use, str]] = {
    "step": "steps",
    "transaction": "transactions",
    "child": "children",
    "timer": "timers",
    "nothing": "waits",
}


def picture(book: str, id: str, line: Timeline, now_ms: int, part: int | None) -> Element:
    """Draw the timeline, or a part of it.

    Args:
        book: the book, for links.
        id: the workflow.
        line: its timeline.
        now_ms: the time now, where the picture of a running workflow ends.
        part: the part to draw, counted from 1; None draws the last.
    """
    parts = max(1, -(-len(line.spans) // ROWS))
    number = min(parts, part or parts)
    spans = line.spans[(number - 1) * ROWS : number * ROWS]
    shown, last_ms = _shown(line, spans, whole=parts == 1, last=number == parts, now_ms=now_ms)
    scale = axis(shown, last_ms)
    rows = [_row(book, span, line, scale) for span in spans]
    note = "Long stretches are drawn shorter than they are." if scale.bent else None
    return make(
        "section",
        make("h2", "Timeline", make("small", _duration_text(line, last_ms)), id="timeline-title"),
        _overview(stretches(shown, last_ms), scale),
        make("ol", _ruler(line, scale), *rows, class_="gantt", aria_labelledby="timeline-title"),
        make("p", note, class_="note") if note else None,
        make("p", UNENDED, class_="note") if line.end_ms is None else None,
        _parts(book, id, number, parts),
        id="timeline",
        class_="panel",
        data_region=True,
    )


def _duration_text(line: Timeline, last_ms: int) -> str:
    took = span_text(max(0, last_ms - line.begin_ms))
    return f"{took} from beginning to end" if line.end_ms is not None else f"runs since {took}"


def _shown(line: Timeline, spans: Sequence[Span], *, whole: bool, last: bool, now_ms: int) -> tuple[Timeline, int]:
    """Return the timeline of the drawn part, and the time where its axis ends."""
    last_ms = line.last_ms(now_ms)
    if whole or not spans:
        return line, last_ms
    ends = [span.end_ms for span in spans if span.end_ms is not None]
    begin_ms = spans[0].begin_ms
    return Timeline(list(spans), begin_ms, line.end_ms if last else max([*ends, begin_ms])), (
        last_ms if last else max([*ends, begin_ms])
    )


def _parts(book: str, id: str, number: int, parts: int) -> Node:
    if parts == 1:
        return None
    links: list[Node] = []
    for text, to in (("Earlier", number - 1), ("Later", number + 1)):
        if 1 <= to <= parts:
            links += [make("a", text, href=address(PATH, book=book, id=id, part=to)), " "]
    return make("p", f"Part {number} of {parts}. ", *links, class_="note")


# -- the axis


def _percent(place: float) -> str:
    return f"{place * 100 / WIDTH:.2f}%"


def _ruler(line: Timeline, scale: Axis) -> Element:
    marks: list[Element] = []
    for tick in TICKS:
        ms = scale.moment(tick * WIDTH / 100)
        anchor = "start" if tick == 0 else "end" if tick == 100 else "middle"
        text = f"+{span_text(round(ms - line.begin_ms))}" if ms > line.begin_ms else "0"
        marks.append(
            make("text", text, x=f"{tick}%", y=11, text_anchor=anchor, class_="often" if tick in (25, 75) else None)
        )
    drawn = make("svg", *marks, class_="track ruler")
    return make("li", make("div", class_="what"), drawn, make("div", class_="took"), class_="axis", aria_hidden="true")


def _overview(found: Sequence[Stretch], scale: Axis) -> Element:
    """Draw what the workflow was busy with as one bar, and list the total time of each use in words."""
    bars = [_bar(scale.place(one.begin_ms), scale.place(one.end_ms), f"use {one.use}", y=0, height=14) for one in found]
    totals: dict[Use, int] = {use: sum(one.end_ms - one.begin_ms for one in found if one.use == use) for use in USES}
    legend = [
        make("li", make("span", class_=f"swatch {use}"), f"{_USES[use]} ", make("b", span_text(total)))
        for use, total in totals.items()
        if total or any(one.use == use for one in found)
    ]
    drawn = make("svg", *bars, class_="overview", aria_hidden="true")
    return make("div", drawn, make("ul", *legend, class_="legend", aria_label="What it was busy with"), class_="busy")


# -- a row


def _row(book: str, span: Span, line: Timeline, scale: Axis) -> Element:
    failed = span.outcome is not None and span.outcome.error is not None
    since = f"+{span_text(max(0, span.begin_ms - line.begin_ms))}"
    detail = span_detail(span)
    text = make("code", f"→ {detail}" if span.outcome is not None else detail, class_="wrong" if failed else None)
    what = make(
        "div",
        make("span", span.kind, class_=f"kind of-{span.kind}"),
        " ",
        _name(book, span),
        make("span", f"{span.attempts} attempts", class_="kind again") if span.attempts > 1 else None,
        make("span", text, class_="detail") if detail else None,
        class_="what",
    )
    took = make("div", make("b", span_took(span)), make("span", since, class_="since"), class_="took")
    drawn = make("svg", *_grid(), *_drawn(span, line, scale, failed=failed), class_="track", aria_hidden="true")
    return make(
        "li", what, drawn, took, class_="fails" if failed else None, data_key=f"{span.kind} {span.key} {span.begin_ms}"
    )


def _name(book: str, span: Span) -> Element:
    name = span_name(span)
    if not span.child:
        return make("b", name) if span.kind != "timer" else _timer(span, name)
    link = make("a", printable(span.child), href=place(book, span.child))
    return make("span", make("b", name), " " if name else None, link)


def _timer(span: Span, name: str) -> Element:
    if span.end_ms is not None or not span.due_ms:
        return make("b", name)
    return make("span", make("b", name), ", until ", moment(span.due_ms))


def _grid() -> list[Element]:
    return [make("line", x1=f"{tick}%", x2=f"{tick}%", y1=0, y2="100%", class_="rule") for tick in TICKS]


def _drawn(span: Span, line: Timeline, scale: Axis, *, failed: bool) -> list[Element]:
    begin = scale.place(span.begin_ms)
    if span.kind in MARKS or span.kind == "transaction":
        kind = f"mark of-{span.kind}{' fails' if failed else ''}"
        return [make("circle", cx=_percent(begin), cy="50%", r=5, class_=kind)]
    unknown = span.end_ms is None
    end_ms = span.end_ms or span.due_ms or None  # an open timer ends when it is due, if it was not cancelled
    end = WIDTH if end_ms is None else scale.place(end_ms)
    kind = f"bar of-{span.kind}{' fails' if failed else ''}{' unknown' if unknown else ''}"
    return [_bar(begin, end, kind, y=5, height=12)]


def _bar(begin: float, end: float, kind: str, *, y: int, height: int) -> Element:
    width = max(LEAST * WIDTH / 100, end - begin)
    left = min(begin, WIDTH - width)
    return make("rect", x=_percent(left), width=_percent(width), y=y, height=height, rx=3, class_=kind)
