"""Findings as text and as a page."""

from __future__ import annotations

from boki_sim.checkers.check import check
from boki_sim.checkers.history import Operation
from boki_sim.checkers.report import as_page, as_text

OPERATIONS = [
    Operation("c1", "append", "b<1>", 0.0, 1.0, "ok", data="a", seqnum=1),
    Operation("c1", "append", "b<1>", 2.0, 3.0, "ok", data="b", seqnum=2),
    Operation("c2", "read", "b<1>", 4.0, 5.0, "ok", rows=((1, "a"),), consistency="linearizable"),
    Operation("c3", "append", "b<1>", 4.5, data="c"),
]


def test_the_text_names_the_steps() -> None:
    text = as_text(check(OPERATIONS))
    assert text.startswith("1. lost (book b<1>)")
    assert "did not see append 'b' → at 2" in text
    assert as_text([]) == "nothing wrong"


def test_the_page_shows_every_call_of_a_finding_and_escapes_what_users_named() -> None:
    page = as_page(OPERATIONS, check(OPERATIONS), title="a & b")
    assert "<svg" in page and page.count("#d1605e") >= 2
    assert "a &amp; b" in page and "b<1>" not in page
    assert "<script" not in page and "http" not in page
