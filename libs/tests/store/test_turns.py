"""Turns within a process, and pauses among processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bokistore.turns import LOSSES, LOST_TURNS, PAUSE_MOST_S, QUIET_WINS, STREAMS, Contention, Turns


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


def test_who_loses_pauses_longer_each_time_and_unlike_others() -> None:
    one, other = Contention("one"), Contention("other")
    pauses = [one.lost(["x"], 0.004) for _ in range(12)]
    assert all(0.5 * 0.008 * 2**n <= pause <= 0.008 * 2**n for n, pause in enumerate(pauses[:6]))
    assert max(pauses) <= PAUSE_MOST_S and pauses[-1] >= PAUSE_MOST_S / 2
    assert pauses != [other.lost(["x"], 0.004) for _ in range(12)]
    again = Contention("one")
    assert pauses == [again.lost(["x"], 0.004) for _ in range(12)], "a simulation repeats them"
    assert one.lost([], 1.0) == 0.0


def test_who_wins_leaves_contended_streams_to_others_for_a_moment() -> None:
    one = Contention("one")
    assert one.won(["x"], 0.004) == ([], 0.0), "nobody else writes it"
    one.lost(["x"], 0.004)
    one.lost(["x"], 0.004)
    contended, pause_s = one.won(["x", "y"], 0.004)
    assert contended == ["x"] and 0 <= pause_s <= 0.008
    assert one.lost(["x"], 0.004) <= 0.008, "losses in a row begin again"
    wins = [one.won(["x"], 0.004)[0] for _ in range(QUIET_WINS)]
    assert wins == [["x"]] * (QUIET_WINS - 1) + [[]]


def test_it_keeps_so_many_streams() -> None:
    one = Contention("one")
    one.lost([f"s{number}" for number in range(STREAMS + 10)], 0.001)
    assert one.won(["s0"], 0.001) == ([], 0.0)
    assert one.won([f"s{STREAMS}"], 0.001)[0]
