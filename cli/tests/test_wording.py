"""Numbers as people read them."""

from __future__ import annotations

from boki_cli.wording import counted, size_text


def test_sizes_for_people() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 31_053_850, 10**9, 10**13)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "31.1 MB",
        "1.0 GB",
        "10000.0 GB",
    ]


def test_one_is_no_plural() -> None:
    assert [counted(count, "record") for count in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]
    assert [counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]
