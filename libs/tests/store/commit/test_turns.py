"""Turns within a process, and pauses among processes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bokistore.commit.turns import (
    CLAIM_LOSSES,
    CLAIM_STEP,
    DOUBLINGS,
    LOSSES,
    LOST_TURNS,
    OUTRUN_LOSSES,
    OWN_SHARE,
    PAUSE_MOST_S,
    QUIET_WINS,
    REST_MOST_S,
    STINT_WINS,
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


def claims(one: Contention, losses: int, run_s: float = 0.0) -> list[tuple[int, float]]:
    """Lose a stream so many times; return with which loss it was claimed, and for how long."""
    lost = [
        (number, one.lost(["x"], 0.004, run_s=run_s)[1] and one.claims(["x"], run_s)) for number in range(1, losses + 1)
    ]
    return [(number, needs_s) for number, needs_s in lost if isinstance(needs_s, float)]


def test_streams_are_claimed_after_losses_in_a_row_and_seldom_if_that_does_not_help() -> None:
    one = Contention("one")
    found = [number for number, _ in claims(one, 59)]
    assert found[0] == CLAIM_LOSSES
    assert all(after - before == min(before // 2, CLAIM_STEP) for before, after in itertools.pairwise(found))
    for _ in range(STINT_WINS):
        one.won(["x"])
    again = [number for number in range(1, CLAIM_LOSSES + 1) if one.lost(["x", "y"], 0.004)[1]]
    assert again == [CLAIM_LOSSES], "commits begin the count again"


def test_a_claim_asks_for_the_time_of_a_run_and_for_twice_as_long_after_one_in_vain() -> None:
    assert [needs_s for _, needs_s in claims(Contention("one"), 40, 0.03)][:5] == [0.03, 0.06, 0.12, 0.24, 0.48]
    assert claims(Contention("one"), 60, 0.03)[-1][1] == 0.03 * 2**DOUBLINGS
    assert claims(Contention("one"), 2, 70.0)[-1][1] == PAUSE_MOST_S


def test_long_runs_are_claimed_for_after_fewer_losses() -> None:
    assert claims(Contention("one"), 3, 0.9)[0] == (2, 0.9)
    assert claims(Contention("one"), 9, 0.3)[0][0] == 4


def test_an_outrun_process_claims_earlier_and_pauses_briefly() -> None:
    """It claimed and committed, and then lost at once: others are faster."""
    one = Contention("one")
    claims(one, CLAIM_LOSSES)
    one.won(["x"])
    assert [one.lost(["x"], 0.004)[1] for _ in range(OUTRUN_LOSSES)] == [[]] * (OUTRUN_LOSSES - 1) + [["x"]]
    assert one.lost(["x"], 0.004)[0] <= 2 * 0.004
    for _ in range(STINT_WINS):
        one.won(["x"])
    assert claims(one, CLAIM_LOSSES)[0][0] == CLAIM_LOSSES, "it is as fast as others"


def test_a_claim_of_another_process_is_a_rest_once_and_of_bounded_length() -> None:
    one = Contention("one")
    assert one.claimed("x", 5, 0.3, 10.0) == pytest.approx(0.3)
    assert one.claimed("x", 5, 0.3, 10.1) == one.claimed("x", 4, 0.3, 10.1) == 0.0, "it was read before"
    assert one.claimed("x", 6, 0.0, 10.1) == one.claimed("y", 6, -1.0, 10.1) == 0.0, (
        "its time has passed, or it names none"
    )
    assert one.claimed("y", 7, 99.0, 10.0) == PAUSE_MOST_S
    assert one.claimed("x", 8, 0.2, 10.1) == pytest.approx(0.4), (
        "claims that come together are served one after the other"
    )
    assert max(one.claimed("x", number, 0.9, 10.2) for number in range(9, 20)) <= REST_MOST_S


def test_a_claim_waits_for_earlier_ones_and_for_those_who_rested() -> None:
    """Before, it would make the earlier claimer lose, or others would not rest for it."""
    one = Contention("one")
    assert one.claimed("x", 5, 0.4, 10.0) == pytest.approx(0.4)
    assert one.wait_s(["x", "y"], 10.3) == pytest.approx(0.1 + 0.4 * OWN_SHARE)
    assert one.wait_s(["x", "y"], 10.5 + 0.4 * OWN_SHARE) <= 0.0 and one.wait_s(["y"], 10.3) == 0.0


def test_a_claim_behind_a_claim_of_this_process_waits_for_it() -> None:
    one = Contention("one")
    one.claimed_here(["x"], 5, 10.5)
    assert one.claimed("x", 6, 0.3, 10.2) == 0.0
    assert one.claimed("x", 4, 0.3, 10.2) == pytest.approx(0.3), "that one was first"
    assert one.claimed("x", 7, 0.3, 12.0) == pytest.approx(0.3)


@given(st.lists(st.tuples(st.floats(0.0, 0.5), st.floats(0.0, 2.0)), min_size=1, max_size=60))
@example([(0.05, 2.0)] * 400)
def test_whatever_others_claim_a_third_of_the_time_is_left(steps: list[tuple[float, float]]) -> None:
    one, now_s, rested_s, until_s = Contention("one"), 1.0, 0.0, 0.0
    for number, (after_s, needs_s) in enumerate(steps, 1):
        now_s += after_s
        rest_s = one.claimed("x", number, needs_s, now_s)
        rested_s += max(0.0, now_s + rest_s - max(now_s, until_s))
        until_s = max(until_s, now_s + rest_s)
        longest_s = REST_MOST_S  # a rest that has not been made up for yet
        assert rested_s <= (max(now_s, until_s) - 1.0) / (1 + OWN_SHARE) + longest_s + 1e-6
    assert until_s - now_s <= REST_MOST_S + 1e-9  # a difference of floats


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
