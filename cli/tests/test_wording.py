"""Numbers as people read them."""

from __future__ import annotations

from boki_cli.wording import counted, field_line, size_text, time_text


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


def test_a_time_is_a_date_and_a_time_in_utc() -> None:
    assert time_text(1_795_330_391_730) == "2026-11-22T06:53:11.730Z"
    assert time_text(0) == "1970-01-01T00:00:00.000Z"


def test_facts_are_lines() -> None:
    facts = {
        "in_view": True,
        "address": None,
        "created_ms": 0,
        "custom": {"a": "b", "c": "d"},
        "terms": 3,
        "old": False,
    }
    assert [field_line(name, value) for name, value in facts.items()] == [
        "         in view  yes",
        "         address  ",
        "         created  1970-01-01T00:00:00.000Z",
        "          custom  a=b, c=d",
        "           terms  3",
        "             old  no",
    ]
