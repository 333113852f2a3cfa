"""When a term has lasted long enough: each reason at its limit, and what keeps terms from following each other for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_metalog.sequencer.roll_rules import TermExtent, roll_reason
from boki_metalog.settings import SequencerSettings

SETTINGS = SequencerSettings(term_shards=16, term_age_s=100.0, term_entries=1_000)


@pytest.mark.parametrize(
    ("extent", "now_s", "expected"),
    [
        (TermExtent(0.0, 999, 15, 1), 99.9, None),
        (TermExtent(0.0, 999, 16, 1), 99.9, "16 shards, of 16"),
        (TermExtent(0.0, 999, 16, 8), 99.9, "16 shards"),
        (TermExtent(0.0, 999, 16, 9), 99.9, None),
        (TermExtent(0.0, 999, 40, 40), 99.9, None),
        (TermExtent(0.0, 1_000, 0, 0), 0.0, "1000 metalog entries, of 1000"),
        (TermExtent(5.0, 1, 1, 1), 104.9, None),
        (TermExtent(5.0, 1, 1, 1), 105.0, "100 s old, of 100"),
        (TermExtent(None, 1, 1, 1), 10_000.0, None),
        (TermExtent(5.0, 1, 1, 1, frees_space=True), 5.0, "the disks of bookies are full"),
        (TermExtent(None, 1, 1, 1, frees_space=True), 5.0, None),
    ],
)
def test_reasons(extent: TermExtent, now_s: float, expected: str | None) -> None:
    reason = roll_reason(extent, SETTINGS, now_s)
    if expected is None:
        assert reason is None
    else:
        assert reason is not None and expected in reason


@given(st.integers(1, 200), st.integers(1, 50))
def test_a_term_in_which_every_engine_has_just_opened_its_shard_goes_on(engines: int, allowed: int) -> None:
    """However many engines there are, a term lasts until half of its shards are replaced by others."""
    settings = SequencerSettings(term_shards=allowed)
    for opened in range(1, engines + 1):
        assert roll_reason(TermExtent(0.0, opened, opened, opened), settings, 1.0) is None
    replaced = max(engines, allowed)
    assert roll_reason(TermExtent(0.0, 99, engines + replaced, engines), settings, 1.0) is not None
