"""Numbers, times and answers as people read them. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping


def size_text(size: int) -> str:
    """Bytes for a person: 999 B, 1.2 MB."""
    if size < 1000:
        return f"{size} B"
    steps = next((steps for steps in (1, 2) if size < 1000 ** (steps + 1)), 3)
    return f"{size / 1000**steps:.1f} {('kB', 'MB', 'GB')[steps - 1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """So many of something: 1 record, 2,000 records."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def time_text(time_ms: int) -> str:
    """Milliseconds since 1970 UTC as a date and a time: 2026-11-22T06:53:11.730Z."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def field_line(name: str, value: object) -> str:
    """A line of a list of facts, as JSON has them: the name aligned, the value as a person reads it."""
    text = value
    if value is None:
        text = ""
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{one}={what}" for one, what in value.items())
    elif name.endswith("_ms") and isinstance(value, int):
        name, text = name.removesuffix("_ms"), time_text(value)
    return f"{name.replace('_', ' '):>16}  {text}"
