"""The report says everything that a reader needs to judge the run, also where no terminal is."""

from __future__ import annotations

import io

from rich.console import Console

from boki_cli.demo import demo_report
from boki_cli.demo.demo_report import DemoReport
from boki_cli.demo.stream_check import CheckResult

RESULTS = [
    CheckResult("carrier/UA", 3, ""),
    CheckResult("carrier/AA", 2, "record 1: wrong"),
    CheckResult("origin/JFK", 5, ""),
]


def report() -> DemoReport:
    made = DemoReport("the flights", "CC0", records=5, data_bytes=1_500, records_per_s=1234.5, append_s=2.0)
    made.killed = ["bookie-2 at 0.8 s, after 2 records", "all others"]
    made.checks = [CheckResult("total order", 5, ""), *demo_report.joined_by_field(RESULTS)]
    return made


def drawn(shown: DemoReport) -> str:
    console = Console(file=io.StringIO(), width=140)
    demo_report.draw(shown, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tags_of_a_field_are_one_line_with_the_first_difference() -> None:
    assert demo_report.joined_by_field(RESULTS) == [
        CheckResult("by carrier, 2 tags", 5, "carrier/AA: record 1: wrong"),
        CheckResult("by origin, 1 tags", 5, ""),
    ]


def test_a_failed_check_is_shown_as_such() -> None:
    text = drawn(report())
    for expected in (
        "the flights (licence CC0)",
        "1,234 records/s",
        "bookie-2 at 0.8 s",
        "carrier/AA: record 1: wrong",
    ):
        assert expected in text
    assert "A check failed" in text
    assert not report().holds


def test_nothing_lost_says_what_to_try_next() -> None:
    good = report()
    good.checks = good.checks[:1]
    text = drawn(good)
    assert "Nothing was lost" in text
    assert "boki dev" in text
    assert "make run INPUT=path" in text


def test_as_json() -> None:
    shown = demo_report.as_object(report())
    assert (shown["records"], shown["holds"], shown["source"]) == (5, False, "the flights")
    assert shown["checks"][0] == {
        "name": "total order",
        "records": 5,
        "difference": "",
        "held": "equal, byte for byte",
        "holds": True,
    }


async def test_steps_are_printed_once_they_are_done() -> None:
    out = io.StringIO()
    steps = demo_report.Steps(Console(file=out, width=100))
    with steps.waiting("get the input"):
        steps.note("a note")
    async with steps.doing("start"):
        assert "✓" not in out.getvalue()
    async with steps.counting("append", 10) as (bar, task):
        bar.advance(task, 10)
    assert out.getvalue().splitlines() == ["  a note", "✓ start", "✓ append"]
