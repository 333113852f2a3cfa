"""What garbage collection may do, as tables."""

from __future__ import annotations

import itertools

import pytest

from boki_bookie.space.gc_rules import (
    COPY_GAIN_BYTES,
    Fact,
    FileUse,
    Proof,
    Verdict,
    dead_files,
    decide,
    files_to_compact,
    judge,
    nominate,
)
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_common.limits import MIB

GRACE_S = 60.0


def metadata(state: LedgerState, *members: str) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(members),
        write_quorum=len(members),
        ack_quorum=1,
        ensembles=((0, tuple(BookieId(member) for member in members)),),
        state=state,
    )


def proof(
    fact: Fact, read_at: float = 0.0, *, session: int = 0, version: int = 3, held: int = 5, repeats: int = 0
) -> Proof:
    return Proof(fact, read_at, session, version, held, repeats)


@pytest.mark.parametrize("state", list(LedgerState))
def test_only_closed_ledgers_are_ever_elsewhere(state: LedgerState) -> None:
    assert judge(metadata(state, "me", "other"), "me") is Fact.KEEP
    expected = Fact.ELSEWHERE if state is LedgerState.CLOSED else Fact.KEEP
    assert judge(metadata(state, "one", "other"), "me") is expected
    assert judge(None, "me") is Fact.GONE


def test_one_read_deletes_nothing() -> None:
    for fact in Fact:
        assert decide(None, proof(fact, 10**9), grace_s=0.0, may_empty=True) in (Verdict.KEEP, Verdict.BEGIN)


def test_two_reads_delete_when_the_grace_is_over() -> None:
    assert decide(proof(Fact.GONE), proof(Fact.GONE, GRACE_S - 0.1), grace_s=GRACE_S, may_empty=True) is Verdict.WAIT
    assert decide(proof(Fact.GONE), proof(Fact.GONE, GRACE_S), grace_s=GRACE_S, may_empty=True) is Verdict.DELETE
    assert (
        decide(proof(Fact.ELSEWHERE), proof(Fact.ELSEWHERE, GRACE_S), grace_s=GRACE_S, may_empty=True) is Verdict.EMPTY
    )


def test_proofs_of_two_facts_or_two_sessions_prove_nothing() -> None:
    for first, now in itertools.permutations(Fact, 2):
        expected = Verdict.KEEP if now is Fact.KEEP else Verdict.BEGIN
        assert decide(proof(first), proof(now, 10**9), grace_s=GRACE_S, may_empty=True) is expected
    for fact in (Fact.GONE, Fact.ELSEWHERE):
        assert decide(proof(fact), proof(fact, 10**9, session=1), grace_s=GRACE_S, may_empty=True) is Verdict.BEGIN


@pytest.mark.parametrize("change", [{"version": 4}, {"held": 6}, {"held": 4}, {"repeats": 1}])
def test_a_copy_that_repair_may_be_using_is_kept(change: dict[str, int]) -> None:
    """An over-replicated copy is the natural target of the next repair (apache/bookkeeper#4668)."""
    later = proof(Fact.ELSEWHERE, 10**9, **change)
    assert decide(proof(Fact.ELSEWHERE), later, grace_s=GRACE_S, may_empty=True) is Verdict.BEGIN


def test_a_listing_only_says_where_to_look() -> None:
    assert nominate([1, 2, 3], {2}, everything=False) == [1, 3]
    assert nominate([1, 2, 3], {2}, everything=True) == [1, 2, 3]


def test_files_are_compacted_emptiest_first_as_far_as_there_is_room() -> None:
    sizes = [(100, 0), (100, 40), (100, 10), (100, 60), (1_000, 400)]
    files = [FileUse(number, size * MIB, live * MIB) for number, (size, live) in enumerate(sizes, 1)]
    assert dead_files(files) == [1]
    assert files_to_compact(files, below=0.5, room_bytes=1_000 * MIB, without=()) == [3, 2, 5]
    assert files_to_compact(files, below=0.5, room_bytes=41 * MIB, without=()) == [3, 2]
    assert files_to_compact(files, below=0.9, room_bytes=1_000 * MIB, without={3}) == [2, 5, 4]
    assert [use.dead_bytes // MIB for use in files] == [100, 60, 90, 40, 600]


def test_a_file_whose_copy_would_be_as_large_is_left_alone() -> None:
    for gain in (COPY_GAIN_BYTES - 1, COPY_GAIN_BYTES):
        files = [FileUse(1, 1_000 + gain, 1_000)]
        assert files_to_compact(files, below=1.0, room_bytes=MIB, without=()) == [1] * (gain >= COPY_GAIN_BYTES)
