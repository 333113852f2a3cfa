"""Rules of locks: their holders, a lock as of a place of the log, and its retention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bokiflow.model import lock_rules
from bokiflow.model.lock_rules import (
    Checkpoint,
    Enqueued,
    Entry,
    LockEvent,
    LockRecord,
    LockTrim,
    Queue,
    Released,
    after,
    holders,
    standing,
)
from bokilib.retention.checkpoint_rules import FORGET_MS

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
    assert "retry later" in str(lock_rules.refusal("a", queue, 1, True))


# -- a lock as of a place of the log

HELD = (Entry(3, "x", "0:1", False, 3),)


def came(seqnum: int, who: str) -> LockRecord:
    return LockRecord(seqnum, seqnum * 1_000, (Enqueued("a", who, "0:1", False, seqnum, True),))


def left(seqnum: int, who: str) -> LockRecord:
    return LockRecord(seqnum, seqnum * 1_000, (Released("a", who, "0:1"),))


def checkpoint(seqnum: int, covers: int, queue: tuple[Entry, ...] = HELD) -> LockRecord:
    event: LockEvent = Checkpoint("a", covers, queue)
    return LockRecord(seqnum, seqnum * 1_000, (event,))


@pytest.mark.parametrize(
    ("found", "trimmed", "owners"),
    [
        ([], 0, []),
        ([came(3, "x"), came(5, "y")], 0, ["x", "y"]),
        ([checkpoint(7, 4), came(9, "y")], 4, ["x", "y"]),
        ([came(3, "x"), checkpoint(7, 4)], 0, ["x"]),  # made, and nothing trimmed yet
        ([came(5, "y"), checkpoint(7, 4)], 3, ["x", "y"]),  # who came after its snapshot
        ([checkpoint(7, 4), left(9, "x")], 4, []),
        ([checkpoint(7, 4), came(11, "z")], 9, ["z"]),  # it was free at 9
        ([left(9, "x")], 8, []),
    ],
)
def test_the_queue_is_that_of_the_checkpoint_and_of_what_came_since(
    found: list[LockRecord], trimmed: int, owners: list[str]
) -> None:
    view = lock_rules.viewed(20, found, trimmed)
    assert [entry.owner for entry in view.queue] == owners
    assert lock_rules.hides_some(found, trimmed) == (trimmed > view.covers)


def test_what_is_held_is_carried_once_a_term_and_goes_under_its_checkpoint() -> None:
    view = lock_rules.viewed(20, [came(3, "x"), came(5, "y")], 0)
    assert not lock_rules.must_rewrite(view, 12_999, 10_000) and lock_rules.must_rewrite(view, 13_000, 10_000)
    assert lock_rules.trim_marks(view, 10**9) == LockTrim() and lock_rules.trim_marks_under(view, 22) == LockTrim(
        21, 22
    )
    carried = lock_rules.viewed(30, [checkpoint(22, 20)], 20)
    assert not lock_rules.must_rewrite(carried, 31_999, 10_000) and lock_rules.must_rewrite(carried, 32_000, 10_000)
    assert lock_rules.trim_marks(carried, 10**9) == LockTrim(21, 22), "who made it may have died before he trimmed"


def test_of_what_nobody_holds_the_newest_stays_until_a_checkpoint_of_it() -> None:
    held = [came(3, "x"), checkpoint(7, 4), left(9, "x")]
    view = lock_rules.viewed(20, held, 0)
    assert lock_rules.trim_marks(view, 10**9) == LockTrim(9, 8) and lock_rules.must_rewrite(view, 10**9, 10_000)
    late = lock_rules.viewed(20, [came(3, "x"), left(6, "x"), checkpoint(7, 4)], 0)
    assert lock_rules.trim_marks(late) == LockTrim(6, 7), "the checkpoint is the newest of its stream"
    over = lock_rules.viewed(30, [checkpoint(22, 20, ())], 20)
    assert lock_rules.is_checkpointed_free(over) and not lock_rules.must_rewrite(over, 10**9, 10_000)
    assert lock_rules.trim_marks(over, 22_000 + FORGET_MS) == LockTrim(21, 22)
    assert lock_rules.trim_marks(over, 22_001 + FORGET_MS) == LockTrim(31, 31, forget=True)


def test_a_queue_that_is_long_to_read_is_kept_in_a_checkpoint() -> None:
    found = [came(number, f"x{number}") for number in range(1, lock_rules.LONG_QUEUE_RECORDS + 1)]
    assert not lock_rules.is_long(lock_rules.viewed(99, found[1:], 0)) and lock_rules.is_long(
        lock_rules.viewed(99, found, 0)
    )
