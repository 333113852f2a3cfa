"""Why a bookie is not drained, each reason by its name, and what a drain waits for."""

from __future__ import annotations

from typing import Any

import pytest

from boki_common.bookkeeper.bookie_mark import DRAINING, BookieMark
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_ledger.repair.drain_rules import (
    DrainCheck,
    Refusal,
    has_entries,
    is_recoverable,
    may_get_entries,
    may_list,
    refusals,
    waits_for,
)

X = BookieId("x")
GRACE_S = 600.0


def ledger(*bookies: str, entries: int = 3, acks: int = 2, state: LedgerState = LedgerState.CLOSED) -> LedgerMetadata:
    closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=len(bookies),
        write_quorum=len(bookies),
        ack_quorum=acks,
        ensembles=((0, tuple(map(BookieId, bookies))),),
        state=state,
        last_entry=entries - 1 if closed else -1,
        length=100 * entries if closed else 0,
    )


def check(
    *, ours: bool = True, away: str = "", targets: dict[str, int | None] | None = None, autorecovery: str = ""
) -> DrainCheck:
    free = {"b1": 10**6, "b2": 10**6, "b3": None} if targets is None else targets
    gone = frozenset(map(BookieId, away.split()))
    return DrainCheck(X, ours, gone, {BookieId(one): size for one, size in free.items()}, autorecovery)


def why(checked: DrainCheck, **ledgers: LedgerMetadata | None) -> list[Refusal]:
    return [one.why for one in refusals(checked, {int(name[1:]): metadata for name, metadata in ledgers.items()})]


def test_a_bookie_whose_copies_find_a_place_may_go() -> None:
    closed, written = ledger("x", "b1", "b2"), ledger("x", "b1", "b2", state=LedgerState.OPEN)
    assert why(check(), l1=closed, l2=written, l3=ledger("b1", "b2", "b3")) == []
    assert why(check(away="x"), l1=closed, l2=written) == []


@pytest.mark.parametrize(
    ("checked", "expected"),
    [
        (check(ours=False), Refusal.NOT_OURS),
        (check(autorecovery="its auditor is elected"), Refusal.AUTORECOVERY),
        (check(targets={"b1": 1_000, "b2": 1_000}), Refusal.TOO_FEW_BOOKIES),
        (check(away="x b1 b2"), Refusal.LAST_COPY),
        (check(targets={"b1": 100, "b2": 100, "b3": 0}), Refusal.NO_SPACE),
    ],
    ids=lambda value: value.value if isinstance(value, Refusal) else "",
)
def test_each_reason_has_its_name(checked: DrainCheck, expected: Refusal) -> None:
    assert expected in why(checked, l1=ledger("x", "b1", "b2"))


def test_what_cannot_be_read_may_name_it() -> None:
    (refused,) = refusals(check(), dict.fromkeys(range(7)))
    assert refused.why is Refusal.UNREADABLE
    assert "ledgers 0, 1, 2, 3, 4 and 2 more" in refused.text


def test_what_may_get_entries_needs_enough_bookies_and_must_be_recoverable() -> None:
    written = ledger("x", "b4", "b5", state=LedgerState.OPEN)
    assert why(check(targets={"b1": None, "b2": None}), l1=written) == [Refusal.TOO_FEW_BOOKIES]
    assert why(check(away="x b4"), l1=written) == [Refusal.NOT_RECOVERABLE]
    assert why(check(away="b4"), l1=written) == [], "it is there itself"


def test_the_bytes_are_those_of_its_own_slots() -> None:
    ledgers: dict[str, Any] = {f"l{number}": ledger("x", "b1", "b2", entries=10) for number in range(10)}
    assert why(check(targets={"b3": 10_000, "b1": None, "b2": None}), **ledgers) == []
    assert why(check(targets={"b3": 9_999, "b1": None, "b2": None}), **ledgers) == [Refusal.NO_SPACE]


def test_recovery_needs_one_of_each_ack_quorum() -> None:
    written = ledger("a", "b", "c", state=LedgerState.OPEN)
    a, b, c = map(BookieId, "abc")
    assert is_recoverable(written, [a])
    assert not is_recoverable(written, [a, b])
    assert is_recoverable(ledger("a", "b", "c"), [a, b, c]), "nothing is to be recovered"


def test_places_with_entries_and_places_that_may_get_some() -> None:
    assert has_entries(ledger("x", "b1"), X) and not may_get_entries(ledger("x", "b1"), X)
    assert not has_entries(ledger("x", "b1", entries=0), X)
    written = ledger("x", "b1", state=LedgerState.OPEN)
    assert may_get_entries(written, X) and not has_entries(written, X)
    two = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        ensembles=((0, (X, BookieId("b1"))), (4, (BookieId("b2"), BookieId("b1")))),
    )
    assert has_entries(two, X) and not may_get_entries(two, X)


def noted(**fields: Any) -> BookieMark:
    return BookieMark(state=DRAINING, **fields)


@pytest.mark.parametrize(
    ("mark", "away_s", "expected"),
    [
        (noted(), None, "not noted yet that it refuses"),
        (noted(refuses=True, ledgers=9, left=(1, 2, 3, 4, 5, 6)), None, "ledgers 1, 2, 3, 4, 5 and 4 more are left"),
        (noted(refuses=True, ledgers=4, held_for_good=3), None, "keeps 3 ledgers that were salvaged"),
        (noted(refuses=True, ledgers=4, in_limbo=True), None, "boki ledger repair"),
        (noted(), 10.0, "away for 10 s"),
    ],
)
def test_a_drain_says_what_it_waits_for(mark: BookieMark, away_s: float | None, expected: str) -> None:
    (text,) = waits_for(mark, away_s, grace_s=GRACE_S, moving=0, written=())
    assert expected in text
    assert not may_list(mark, away_s, grace_s=GRACE_S)


def test_it_ends_when_it_is_empty_or_was_away_for_the_grace() -> None:
    empty = noted(refuses=True, empty=True)
    assert may_list(empty, None, grace_s=GRACE_S)
    assert waits_for(empty, None, grace_s=GRACE_S, moving=0, written=()) == []
    assert may_list(noted(), GRACE_S, grace_s=GRACE_S)
    assert waits_for(noted(), GRACE_S, grace_s=GRACE_S, moving=0, written=()) == []
    assert not may_list(noted(empty=True), None, grace_s=GRACE_S)
    moving, written = waits_for(empty, None, grace_s=GRACE_S, moving=2, written=(7,))
    assert "2 ledgers are to be copied" in moving and "ledgers 7 are written" in written
