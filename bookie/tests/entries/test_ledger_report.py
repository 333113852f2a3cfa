"""What is reported of ledgers to an operator, against what they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.entries import ledger_report
from boki_bookie.entries.ledger_index import Ledger

BODY = memoryview(b"secret payload")


def ledger_of(stored: set[int], flushing: set[int], fresh: set[int]) -> Ledger:
    ledger = Ledger(7, b"the master key of it")
    ordered = sorted(stored)
    ledger.places.add(ordered, [0] * len(ordered), [len(BODY)] * len(ordered))
    ledger.flushing = dict.fromkeys(sorted(flushing - stored), BODY)
    ledger.fresh = dict.fromkeys(sorted(fresh - flushing - stored), BODY)
    ledger.last_entry = max(stored | flushing | fresh, default=-1)
    return ledger


ENTRIES = st.sets(st.integers(0, 30), max_size=12)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_ranges_and_counts_are_those_of_the_entries(stored: set[int], flushing: set[int], fresh: set[int]) -> None:
    held = stored | flushing | fresh
    report = ledger_report.detail(ledger_of(stored, flushing, fresh), limbo=False)
    assert {entry for first, last in report["entry_ranges"] for entry in range(first, last + 1)} == held
    assert all(first - 1 not in held and last + 1 not in held for first, last in report["entry_ranges"])
    assert report["entries"] == report["cached_entries"] + report["stored_entries"] == len(held)
    assert report["bytes"] == len(BODY) * len(held)
    assert report["last_entry"] == max(held, default=None)


def test_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_report, "RANGES_LISTED", 2)
    report = ledger_report.detail(ledger_of({1, 3, 4, 9, 20}, set(), set()), limbo=True)
    assert (report["entry_ranges"], report["entry_ranges_left_out"]) == ([[1, 1], [3, 4]], 2)
    assert report["limbo"]


def test_the_report_contains_no_key() -> None:
    assert "master key" not in str(ledger_report.detail(ledger_of({1}, {2}, {3}), limbo=False))


def test_pages_of_ids() -> None:
    ids = [5, 1, 9, 3]
    assert ledger_report.next_ids(ids, after=-1, limit=3) == [1, 3, 5]
    assert ledger_report.next_ids(ids, after=5, limit=3) == [9]
