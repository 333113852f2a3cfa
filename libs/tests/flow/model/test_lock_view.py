"""A lock as of a place: what its checkpoint has, what lies above, what of it goes, and when."""

from __future__ import annotations

import pytest

from bokiflow.model import lock_view
from bokiflow.model.lock_rules import Checkpoint, Enqueued, Entry, LockEvent, Released
from bokiflow.model.lock_view import Found, Marks
from bokilib.retention.checkpoint_rules import FORGET_MS

HELD = (Entry(3, "x", "0:1", False, 3),)


def came(seqnum: int, who: str) -> Found:
    return Found(seqnum, seqnum * 1_000, (Enqueued("a", who, "0:1", False, seqnum, True),))


def left(seqnum: int, who: str) -> Found:
    return Found(seqnum, seqnum * 1_000, (Released("a", who, "0:1"),))


def checkpoint(seqnum: int, covers: int, queue: tuple[Entry, ...] = HELD) -> Found:
    event: LockEvent = Checkpoint("a", covers, queue)
    return Found(seqnum, seqnum * 1_000, (event,))


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
    found: list[Found], trimmed: int, owners: list[str]
) -> None:
    view = lock_view.viewed(20, found, trimmed)
    assert [entry.owner for entry in view.queue] == owners
    assert lock_view.hides_some(found, trimmed) == (trimmed > view.covers)


def test_what_is_held_is_carried_once_a_term_and_goes_under_its_checkpoint() -> None:
    view = lock_view.viewed(20, [came(3, "x"), came(5, "y")], 0)
    assert not lock_view.must_carry(view, 12_999, 10_000) and lock_view.must_carry(view, 13_000, 10_000)
    assert lock_view.trim_marks(view, 10**9) == Marks() and lock_view.trim_marks_under(view, 22) == Marks(21, 22)
    carried = lock_view.viewed(30, [checkpoint(22, 20)], 20)
    assert not lock_view.must_carry(carried, 31_999, 10_000) and lock_view.must_carry(carried, 32_000, 10_000)
    assert lock_view.trim_marks(carried, 10**9) == Marks(21, 22), "who made it may have died before he trimmed"


def test_of_what_nobody_holds_the_newest_stays_until_a_checkpoint_of_it() -> None:
    held = [came(3, "x"), checkpoint(7, 4), left(9, "x")]
    view = lock_view.viewed(20, held, 0)
    assert lock_view.trim_marks(view, 10**9) == Marks(9, 8) and lock_view.must_carry(view, 10**9, 10_000)
    late = lock_view.viewed(20, [came(3, "x"), left(6, "x"), checkpoint(7, 4)], 0)
    assert lock_view.trim_marks(late) == Marks(6, 7), "the checkpoint is the newest of its stream"
    over = lock_view.viewed(30, [checkpoint(22, 20, ())], 20)
    assert lock_view.is_over(over) and not lock_view.must_carry(over, 10**9, 10_000)
    assert lock_view.trim_marks(over, 22_000 + FORGET_MS) == Marks(21, 22)
    assert lock_view.trim_marks(over, 22_001 + FORGET_MS) == Marks(31, 31, forget=True)


def test_a_queue_that_is_long_to_read_is_kept_in_a_checkpoint() -> None:
    found = [came(number, f"x{number}") for number in range(1, lock_view.RECORDS + 1)]
    assert not lock_view.is_long(lock_view.viewed(99, found[1:], 0)) and lock_view.is_long(
        lock_view.viewed(99, found, 0)
    )
