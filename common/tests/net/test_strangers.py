"""Who may be connected without having introduced himself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.net.strangers import StrangerLimits, Strangers

LIMITS = StrangerLimits(wait_s=5, connections=3, buffered_bytes=100)


def test_one_too_many_takes_the_place_of_the_oldest() -> None:
    strangers: Strangers[str] = Strangers(LIMITS)
    assert [strangers.came(name, 0) for name in "abcd"] == [None, None, None, "a"]
    strangers.left("a")
    strangers.left("b")
    assert strangers.came("e", 1) is None
    assert strangers.came("f", 1) == "c"


def test_time_is_over_for_each_by_itself() -> None:
    strangers: Strangers[str] = Strangers(LIMITS)
    assert strangers.next_end is None
    strangers.came("a", 10)
    strangers.came("b", 11)
    assert strangers.next_end == 15
    assert strangers.overdue(14.9) == []
    assert strangers.overdue(15) == ["a"]
    assert strangers.overdue(16) == ["a", "b"]
    assert strangers.left("a")
    assert not strangers.left("a"), "it was known already"
    assert strangers.next_end == 16


def test_their_buffers_are_bounded_in_sum_and_what_one_held_is_free_when_it_leaves() -> None:
    strangers: Strangers[str] = Strangers(LIMITS)
    for name in "ab":
        strangers.came(name, 0)
    assert strangers.grew("a", 60)
    assert strangers.grew("a", 80), "instead of the 60, not beside them"
    assert not strangers.grew("b", 21)
    assert strangers.grew("b", 20)
    strangers.left("a")
    assert strangers.grew("b", 100)
    assert strangers.buffered == 100


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["came", "grew", "left"]), st.integers(1, 60))))
def test_the_sum_is_never_above_its_bound(steps: list[tuple[str, str, int]]) -> None:
    strangers: Strangers[str] = Strangers(LIMITS)
    held: dict[str, int] = {}
    for now, (name, step, size) in enumerate(steps):
        if step == "came" and name not in strangers:
            dropped = strangers.came(name, now)
            if dropped is not None:
                strangers.left(dropped)
                held.pop(dropped, None)
        elif step == "grew" and name in strangers:
            if strangers.grew(name, size):
                held[name] = size
        else:
            strangers.left(name)
            held.pop(name, None)
        assert strangers.buffered == sum(held.values()) <= LIMITS.buffered_bytes
        assert len(strangers) <= LIMITS.connections


def test_what_everybody_may_do_to_a_server_is_what_the_page_says() -> None:
    allowed = StrangerLimits()
    assert (allowed.frame_bytes, allowed.wait_s) == (64 * limits.KIB, 5.0)
    assert allowed.connections * limits.CONNECTION_FIRST_BUFFER_BYTES + allowed.buffered_bytes <= 20 * limits.MIB
