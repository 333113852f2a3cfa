"""Who holds a lock, by its stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bokiflow.model import lock_rules
from bokiflow.model.lock_rules import Enqueued, LockEvent, Queue, Released, after, holders, standing

EVENTS = st.lists(
    st.one_of(
        st.builds(
            Enqueued,
            st.just("a"),
            st.sampled_from("xyz"),
            st.sampled_from(["1", "2"]),
            st.booleans(),
            st.integers(1, 3),
            st.booleans(),
        ),
        st.builds(Released, st.just("a"), st.sampled_from("xyz"), st.sampled_from(["1", "2"])),
    ),
    max_size=12,
)


@given(EVENTS)
def test_whatever_comes_only_those_who_share_hold_it_together(events: list[LockEvent]) -> None:
    queue: Queue = ()
    before: Queue = ()
    for seqnum, event in enumerate(events, 1):
        queue = after(queue, seqnum, [event])
        assert [entry.number for entry in queue] == sorted(entry.number for entry in queue)
        assert len(holders(queue)) <= 1 or all(entry.shared for entry in holders(queue))
        assert bool(holders(queue)) == bool(queue)
        kept = {entry for entry in before if entry in queue}
        assert kept == {entry for entry in before if standing(queue, entry.number) != "gone"}
        assert kept & set(holders(before)) <= set(holders(queue)), "nobody loses it to who comes later"
        before = queue


def test_whoever_has_more_waits_for_younger_ones_only() -> None:
    queue = after((), 1, [Enqueued("a", "x", "0:1", False, 5, True)])
    assert after(queue, 2, [Enqueued("a", "y", "0:1", False, 4, False)])[1:] != ()
    for age in (5, 6):
        assert after(queue, 2, [Enqueued("a", "y", "0:1", False, age, False)]) == queue
    assert after(queue, 2, [Enqueued("a", "y", "0:1", False, 6, True)])[1:] != ()


def test_a_full_queue_takes_nobody_more() -> None:
    queue: Queue = ()
    for number in range(1, lock_rules.QUEUE_ENTRIES + 3):
        queue = after(queue, number, [Enqueued("a", f"{number}", "0:1", False, number, True)])
    assert len(queue) == lock_rules.QUEUE_ENTRIES
    assert "begin again later" in str(lock_rules.refusal("a", queue, 1, True))
