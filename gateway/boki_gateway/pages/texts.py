"""What others wrote, as people may see it on a terminal or a page: it never moves a cursor or ends a line. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

PREVIEW: Final = 120


def printable(text: str) -> str:
    """A text on one line: what a terminal would obey, and what has no width, as an escape."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def value_text(value: Any, *, indent: int = 0) -> str:
    """A JSON value; with an indent on lines of its own."""
    data = msgspec.json.encode(value)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode()


def preview(value: Any, most: int = PREVIEW) -> str:
    """A JSON value on one line, cut where it becomes long."""
    text = printable(value_text(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def span_text(ms: int) -> str:
    """How long something took: 7 ms, 1.4 s, 12 min, 3.5 h, 30 days."""
    steps = ((1_000, 1, "ms"), (100_000, 1_000, "s"), (7_200_000, 60_000, "min"), (172_800_000, 3_600_000, "h"))
    for below, unit, name in steps:
        if ms < below:
            return f"{ms / unit:.1f} {name}" if unit in (1_000, 3_600_000) else f"{ms / unit:.0f} {name}"
    return f"{ms / 86_400_000:.1f} days"
