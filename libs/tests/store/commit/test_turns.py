"""Turns within a process, and pauses among processes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bokistore.commit.turns import (
    CLAIM_LOSSES,
    CLAIM_STEP,
    DOUBLINGS,
    LOSSES,
    LOST_TURNS,
    PAUSE_MOST_S,
    QUIET_WINS,
    STREAMS,
    Contention,
    Turns,
)


def test_one_that_lost_often_has_the_turn_for_what_it_expects() -> None:
    turns = Turns()
    for losses in range(1, LOSSES):
        turns.lost(7, losses, ["x"])
    assert not turns.waits(1, ["x"])
    turns.lost(7, LOSSES, ["x"])
    assert turns.waits(1, ["x", "z"]) and turns.waits(9, ["x"]), "older and younger ones"
    assert not turns.waits(1, ["y"]) and not turns.waits(7, ["x"])
    turns.lost(7, LOSSES + 1, ["y"])
    assert turns.waits(1, ["x"]) and turns.waits(1, ["y"]), "what it read this time, and before"
    assert turns.ended(7) and not turns.ended(7)
    assert not turns.waits(1, ["x"])


def test_of_several_with_a_turn_the_oldest_waits_for_none() -> None:
    turns = Turns()
    for number, streams in ((5, "xy"), (3, "y"), (8, "x")):
        turns.lost(number, LOSSES, streams)
    assert not turns.waits(3, "xy")
    assert turns.waits(5, "y") and not turns.waits(5, "x")
    assert turns.waits(8, "x")
    turns.ended(3)
    assert not turns.waits(5, "xy")


def test_a_turn_ends_after_so_many_losses_to_other_processes() -> None:
    turns = Turns()
    lost = [turns.lost(1, losses, "x") for losses in range(1, LOSSES + LOST_TURNS + 1)]
    assert lost == [False] * (LOSSES + LOST_TURNS - 1) + [True]
    assert len(turns) == 0


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["x", "y", "xy"]), st.booleans()), max_size=20))
def test_some_transaction_with_a_turn_never_waits(steps: list[tuple[int, str, bool]]) -> None:
    turns = Turns()
    held: set[int] = set()
    for number, streams, ends in steps:
        if ends:
            turns.ended(number)
            held.discard(number)
        else:
            turns.lost(number, LOSSES, streams)
            held.add(number)
        assert len(turns) == len(held)
        assert not held or not turns.waits(min(held), "xyz")


def test_a_process_that_loses_pauses_longer_each_time_and_unlike_others() -> None:
    one, other = Contention("one"), Contention("other")
    pauses = [one.lost(["x"], 0.004)[0] for _ in range(12)]
    assert all(0.5 * 0.008 * 2**n <= pause <= 0.008 * 2**n for n, pause in enumerate(pauses[:DOUBLINGS]))
    assert max(pauses) <= 0.004 * 2**DOUBLINGS and pauses[-1] >= 0.004 * 2**DOUBLINGS / 2
    assert pauses != [other.lost(["x"], 0.004)[0] for _ in range(12)]
    again = Contention("one")
    assert pauses == [again.lost(["x"], 0.004)[0] for _ in range(12)], "a simulation repeats them"
    assert one.lost([], 1.0) == (0.0, [])
    assert one.lost(["y"], 9.0)[0] <= PAUSE_MOST_S


def test_streams_are_claimed_after_losses_in_a_row_and_seldom_if_that_does_not_help() -> None:
    one = Contention("one")
    claims = [number for number in range(1, 60) if one.lost(["x"], 0.004)[1] == ["x"]]
    assert claims[0] == CLAIM_LOSSES
    assert all(after - before == min(before // 2, CLAIM_STEP) for before, after in itertools.pairwise(claims))
    one.won(["x"])
    again = [number for number in range(1, CLAIM_LOSSES + 1) if one.lost(["x", "y"], 0.004)[1]]
    assert again == [CLAIM_LOSSES], "a commit begins the count again"


def test_a_guess_that_was_wrong_counts_only_on_a_contended_stream() -> None:
    one = Contention("one")
    assert one.lost(["x"], 0.004, guessed=True) == (0.0, [])
    assert one.lost(["x"], 0.004, guessed=True)[0] > 0, "others write it"
    for _ in range(QUIET_WINS):
        one.won(["x"])
    assert one.lost(["x"], 0.004, guessed=True) == (0.0, [])


def test_it_keeps_so_many_streams() -> None:
    one = Contention("one")
    one.lost([f"s{number}" for number in range(STREAMS + 10)], 0.001)
    assert one.lost(["s0"], 0.001, guessed=True) == (0.0, [])
    assert one.lost([f"s{STREAMS}"], 0.001, guessed=True)[0]
