"""The verdict on the copies of an entry, and when a ledger is whole."""

from __future__ import annotations

import json

import pytest

from boki_common.ids import BookieId
from boki_ledger.repair.scrub_rules import NAMED, Copy, Found, Scrubbed, Verdict, has_diverged

SOUND = Copy(Verdict.SOUND, (7, b"payload"))
A, B, C = map(BookieId, "abc")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (SOUND, False),
        (Copy(Verdict.SOUND, (7, b"another")), True),
        (Copy(Verdict.SOUND, (8, b"payload")), True),
        (Copy(Verdict.DAMAGED), False),
        (Copy(Verdict.MISSING), False),
        (Copy(Verdict.UNANSWERED), False),
    ],
)
def test_only_sound_copies_can_differ(other: Copy, expected: bool) -> None:
    assert has_diverged({A: SOUND, B: other, C: SOUND}) is expected
    assert not has_diverged({B: other})


def test_a_ledger_is_whole_when_nothing_is_left_over() -> None:
    assert Scrubbed(1, copies=9, missing=2, copied=2).is_whole
    assert not Scrubbed(1, missing=2, copied=1).is_whole
    assert not Scrubbed(1, unanswered={A: "away"}).is_whole
    damaged = Scrubbed(1)
    damaged.damaged.add(3, A)
    assert not damaged.is_whole
    damaged.replaced = 1
    assert damaged.is_whole
    damaged.diverged.add(4, "a, b")
    assert not damaged.is_whole
    assert json.loads(json.dumps(damaged.describe()))["diverged_entries"] == [[4, "a, b"]]


def test_what_is_named_is_bounded() -> None:
    found = Found()
    for entry_id in range(NAMED + 5):
        found.add(entry_id, A)
    assert (found.total, len(found.named)) == (NAMED + 5, NAMED)
