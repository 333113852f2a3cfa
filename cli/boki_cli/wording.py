"""Numbers as people read them. Pure."""

from __future__ import annotations


def size_text(size: int) -> str:
    """Bytes for a person: 999 B, 1.2 MB."""
    if size < 1000:
        return f"{size} B"
    steps = next((steps for steps in (1, 2) if size < 1000 ** (steps + 1)), 3)
    return f"{size / 1000**steps:.1f} {('kB', 'MB', 'GB')[steps - 1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """So many of something: 1 record, 2,000 records."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
