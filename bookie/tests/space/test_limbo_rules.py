"""Who is in limbo, what a closed ledger puts on a bookie, and when there is proof that all of it is there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.space.limbo_rules import Doubt, is_proven, judge_lost, missing_entries, names, owed_ranges
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId

BOOKIES = tuple(BookieId(f"b{number}") for number in range(9))


def closed(last_entry: int, *ensembles: tuple[int, tuple[BookieId, ...]], quorum: int) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(ensembles[0][1]),
        write_quorum=quorum,
        ack_quorum=1,
        ensembles=ensembles,
        state=LedgerState.CLOSED,
        last_entry=last_entry,
        length=0,
    )


def metadata(state: LedgerState, *members: str) -> LedgerMetadata:
    bookies = tuple(BookieId(name) for name in members)
    return LedgerMetadata(
        ensemble_size=len(bookies), write_quorum=len(bookies), ack_quorum=1, ensembles=((0, bookies),), state=state
    )


@pytest.mark.parametrize(
    ("state", "named", "unnamed"),
    [
        (LedgerState.OPEN, Doubt.FENCED, Doubt.LISTED),
        (LedgerState.IN_RECOVERY, Doubt.FENCED, Doubt.LISTED),
        (LedgerState.CLOSED, Doubt.FENCED, Doubt.NONE),
    ],
)
def test_every_row_of_the_table_of_lost_ledgers(state: LedgerState, named: Doubt, unnamed: Doubt) -> None:
    assert judge_lost(metadata(state, "me", "you"), "me") is named
    assert judge_lost(metadata(state, "you"), "me") is unnamed
    assert judge_lost(None, "me") is Doubt.FENCED


def test_an_older_ensemble_names_a_bookie_too() -> None:
    changed = closed(9, (0, BOOKIES[:2]), (5, BOOKIES[1:3]), quorum=2)
    assert names(changed, "b0")
    assert owed_ranges(changed, "b0") == [range(5)]
    assert owed_ranges(changed, "b1") == [range(5), range(5, 10)]
    assert owed_ranges(changed, "b8") == []


def test_an_empty_ledger_owes_nothing() -> None:
    assert owed_ranges(closed(-1, (0, BOOKIES[:3]), quorum=2), "b1") == []


@given(data=st.data())
def test_what_is_owed_is_what_round_robin_puts_there(data: Any) -> None:
    """A plain count: entry e lies on slots e, e + 1, … (mod E), Qw of them."""
    size = data.draw(st.integers(1, 7))
    quorum = data.draw(st.integers(1, size))
    firsts = sorted(data.draw(st.sets(st.integers(1, 40), max_size=3)) | {0})
    ensembles = tuple((first, tuple(data.draw(st.permutations(BOOKIES))[:size])) for first in firsts)
    last_entry = data.draw(st.integers(max(firsts) - 1, 60))
    ledger = closed(last_entry, *ensembles, quorum=quorum)
    for bookie in BOOKIES:
        plain = [
            entry
            for entry in range(last_entry + 1)
            if bookie in [ledger.ensemble_of(entry)[(entry + place) % size] for place in range(quorum)]
        ]
        owed = [entry for entries in owed_ranges(ledger, bookie) for entry in entries]
        assert sorted(owed) == plain
        held = data.draw(st.sets(st.sampled_from(plain))) if plain else set()
        missing = sorted(set(plain) - held)
        assert sorted(missing_entries(ledger, bookie, held)) == missing
        assert is_proven(ledger, bookie, sorted(held)) is (not missing)


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_only_a_closed_or_deleted_ledger_is_proven(state: LedgerState) -> None:
    assert not is_proven(metadata(state, "me"), "me", range(1_000))
    assert not is_proven(metadata(state, "you"), "me", range(1_000))
    assert is_proven(None, "me", [])
    assert is_proven(closed(9, (0, BOOKIES[:2]), quorum=2), "b5", [])
