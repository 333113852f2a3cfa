"""Recovery decisions: start, verdicts in any order, the end, the floor."""

from __future__ import annotations

from collections.abc import Container
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from boki_ledger.rules.answers import Answer, Verdict
from boki_ledger.rules.recovery_plan import RecoveryPlan, recovery_start
from boki_ledger.rules.write_set import write_set

H, N, U = Answer.HAVE, Answer.NEVER_HAD, Answer.UNKNOWN


def plan(
    *,
    start: int = -1,
    floor: int = 0,
    size: int = 3,
    write_quorum: int = 3,
    ack_quorum: int = 2,
    carried: Container[int] = (),
) -> RecoveryPlan:
    return RecoveryPlan(
        start=start,
        ensemble_size=size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        floor=floor,
        carried=carried,
    )


def test_recovery_starts_at_the_last_fragment_even_if_its_bookies_know_no_lac() -> None:
    assert recovery_start([-1, -1], last_fragment_first=7) == 6
    assert recovery_start([9, 8], last_fragment_first=7) == 9
    assert recovery_start([], last_fragment_first=0) == -1


def test_one_copy_proves_an_entry_and_two_negatives_of_three_end_the_ledger() -> None:
    recovery = plan()
    recovery.answered(0, 1, H)
    assert (recovery.present_to, recovery.end) == (0, None)
    recovery.answered(1, 0, N)
    assert recovery.end is None
    recovery.answered(1, 2, N)
    assert recovery.end == 0


def test_a_gap_closes_before_it_whatever_lies_beyond() -> None:
    recovery = plan()
    recovery.answered(14, 0, H)
    for entry in range(10):
        recovery.answered(entry, entry % 3, H)
    recovery.answered(10, 0, N)
    recovery.answered(10, 1, N)
    assert recovery.end == 9
    recovery.answered(10, 2, H)
    assert (recovery.present_to, recovery.end) == (9, 9), "a late positive is ignored"


def test_a_negative_ahead_of_undecided_entries_waits_for_them() -> None:
    recovery = plan()
    recovery.answered(2, 0, N)
    recovery.answered(2, 1, N)
    recovery.answered(0, 0, H)
    assert recovery.end is None and recovery.present_to == 0
    recovery.answered(1, 0, H)
    assert recovery.end == 1


def test_unknown_answers_decide_nothing_and_are_asked_again() -> None:
    recovery = plan()
    for slot in range(3):
        recovery.answered(0, slot, U)
    assert recovery.to_ask(0) == (0, 1, 2)
    recovery.answered(0, 1, N)
    assert recovery.to_ask(0) == (0, 2) and recovery.verdict(0) is Verdict.UNDECIDED
    recovery.answered(0, 0, N)
    assert recovery.to_ask(0) == ()


def test_below_the_floor_negatives_must_be_unanimous_and_are_evidence() -> None:
    recovery = plan(floor=1)
    recovery.answered(0, 0, N)
    recovery.answered(0, 1, N)
    assert recovery.end is None and recovery.to_ask(0) == (2,)
    recovery.answered(0, 2, N)
    assert recovery.end == -1 and recovery.below_floor

    saved = plan(floor=1)
    saved.answered(0, 0, N)
    saved.answered(0, 1, N)
    saved.answered(0, 2, H)
    saved.answered(1, 0, N)
    saved.answered(1, 1, N)
    assert saved.end == 0 and not saved.below_floor


def test_what_is_carried_behind_the_start_is_present_before_anybody_answers() -> None:
    recovery = plan(start=4, floor=8, carried={3, 5, 6, 7, 9})
    assert (recovery.present_to, recovery.end) == (7, None)
    assert [recovery.to_ask(entry) for entry in (5, 7, 8, 9)] == [(), (), (2, 0, 1), ()]
    recovery.answered(8, 0, N)
    recovery.answered(8, 1, N)
    assert recovery.end == 7 and not recovery.below_floor


def test_denials_of_what_is_carried_count_for_nothing() -> None:
    recovery = plan(floor=2, carried={1})
    for slot in range(3):
        recovery.answered(1, slot, N)
    assert recovery.end is None and recovery.verdict(1) is Verdict.PRESENT
    recovery.answered(0, 2, H)
    assert (recovery.present_to, recovery.end) == (1, None)
    recovery.answered(2, 0, N)
    recovery.answered(2, 1, N)
    assert recovery.end == 1


def test_a_copy_that_is_found_goes_on_over_what_is_carried_behind_it() -> None:
    recovery = plan(carried={1, 2, 4})
    recovery.found(0)
    assert recovery.present_to == 2
    recovery.found(2)
    recovery.found(4)
    recovery.found(3)
    assert (recovery.present_to, recovery.end) == (4, None)
    recovery.answered(5, 0, N)
    recovery.answered(5, 2, N)
    assert recovery.end == 4


def test_what_is_carried_beyond_a_missing_entry_is_evidence_and_ends_nothing() -> None:
    recovery = plan(floor=3, carried={2})
    recovery.answered(0, 0, H)
    recovery.answered(1, 0, N)
    recovery.answered(1, 1, N)
    assert recovery.end is None, "two of three may be wrong about what was acknowledged"
    recovery.answered(1, 2, N)
    assert recovery.end == 0 and recovery.below_floor


@given(st.data())
def test_the_order_of_answers_matters_neither_to_the_end_nor_to_what_is_carried(data: st.DataObject) -> None:
    """Each entry is held by some bookies of its write set, or by none, and may be carried. The floor is what the cut names."""
    size = data.draw(st.integers(1, 5))
    write_quorum = data.draw(st.integers(1, size))
    ack_quorum = data.draw(st.integers(1, write_quorum))
    held = {entry: data.draw(st.sets(st.sampled_from(write_set(entry, size, write_quorum)))) for entry in range(8)}
    carried = data.draw(st.just(set[int]()) | st.sets(st.integers(0, 7)))
    floor = max(carried, default=-1) + 1
    there = 0
    while there < 8 and (held[there] or there in carried):
        there += 1
    start = data.draw(st.integers(-1, min(there, 7) - 1))
    recovery = plan(
        start=start, floor=floor, size=size, write_quorum=write_quorum, ack_quorum=ack_quorum, carried=carried
    )
    questions = [(entry, slot) for entry in range(start + 1, 10) for slot in write_set(entry, size, write_quorum)]
    for entry, slot in data.draw(st.permutations(questions)):
        have = slot in held.get(entry, ())
        if have and data.draw(st.booleans()):
            recovery.found(entry)
        else:
            recovery.answered(entry, slot, H if have else N)
        assert all(held[one] or one in carried for one in range(recovery.start + 1, recovery.present_to + 1))
    assert recovery.end is not None
    assert recovery.below_floor == (there < floor)
    if not recovery.below_floor:
        assert floor <= recovery.end + 1 <= there
        acked = next((one for one in range(8) if len(held[one]) < ack_quorum and one not in carried and one > start), 8)
        assert recovery.end + 1 >= min(acked, there)


def test_a_recovery_never_drops_an_acknowledged_entry_nor_keeps_an_unwritten_one() -> None:
    """All placements of three entries on three bookies, E = Qw = 3, Qa = 2, with up to one bookie silent."""
    for held in product(range(8), repeat=3):
        acked = 0
        while acked < 3 and held[acked].bit_count() >= 2:
            acked += 1
        for silent in (None, 0, 1, 2):
            recovery = plan()
            for entry in range(4):
                mask = held[entry] if entry < 3 else 0
                for slot in range(3):
                    if slot != silent:
                        recovery.answered(entry, slot, H if mask >> slot & 1 else N)
            assert recovery.end is not None, "one silent bookie of three never blocks a recovery"
            assert recovery.end + 1 >= acked
            assert all(held[entry] for entry in range(recovery.end + 1))
