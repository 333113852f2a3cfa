"""Assignments are the same for all members, and partitions move without two owners and without being left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from bokilib.partitions.assignment import NOBODY, Standing, by_weight, in_turn, moves

PARTITIONS = 64
MEMBERS = ["a", "b", "c"]


def of(assigned: list[str], member: str) -> set[int]:
    return {one for one, name in enumerate(assigned) if name == member}


def test_by_weight_a_member_that_goes_moves_only_its_share() -> None:
    before, after = by_weight(MEMBERS, PARTITIONS), by_weight(["b", "a", "a"], PARTITIONS)
    assert of(before, "a") <= of(after, "a") and of(before, "b") <= of(after, "b")
    assert set(after) == {"a", "b"} and min(Counter(before).values()) > PARTITIONS // 8


def test_in_turn_partitions_are_dealt_evenly() -> None:
    for members in range(1, 9):
        names = [f"m{number}" for number in range(members)]
        planned = in_turn(names, 16, "q/g")
        assert planned == in_turn(names[::-1], 16, "q/g")
        counts = Counter(planned)
        assert max(counts.values()) - min(counts[name] for name in names) <= 1
    assert {in_turn(["a", "b"], 1, f"q{number}/g")[0] for number in range(16)} == {"a", "b"}


def test_without_members_partitions_are_nobodys() -> None:
    assert by_weight([], 2) == in_turn([], 2, "q/g") == [NOBODY, NOBODY]


def test_only_free_and_own_partitions_are_taken() -> None:
    standings = [
        Standing(NOBODY, mine=False, free=True),
        Standing("b", mine=False, free=False),
        Standing("b", mine=False, free=True),
        Standing("a", mine=False, free=False),
        Standing("a", mine=True, free=False),
    ]
    assert moves("a", ["a"] * 5, standings) == ([0, 2, 3], [])
    assert moves("a", ["b"] * 5, standings) == ([3], [4]), "held by a, which does not own it: no other member takes it"
    assert moves("a", [NOBODY] * 5, standings) == ([3], [])


@pytest.mark.parametrize("assign", [lambda: in_turn(MEMBERS, 5, "q/g"), lambda: by_weight(MEMBERS, 5)])
@pytest.mark.parametrize("from_the_living", [False, True])
def test_from_any_standing_members_reach_the_assignment_and_stay(
    assign: Callable[[], list[str]], from_the_living: bool
) -> None:
    planned = assign()
    for start in range(4**5):
        holders = [[*MEMBERS, NOBODY][start // 4**one % 4] for one in range(5)]
        owned = [False] * 5
        for _ in range(3):
            for me in MEMBERS:
                standings = [
                    Standing(holder, holder == me and owned[one], holder == NOBODY or from_the_living)
                    for one, holder in enumerate(holders)
                ]
                todo = moves(me, planned, standings)
                for one in todo.take:
                    assert from_the_living or holders[one] in (NOBODY, me)
                    holders[one], owned[one] = me, True
                for one in todo.give if not from_the_living else ():
                    holders[one] = NOBODY
        assert holders == planned
