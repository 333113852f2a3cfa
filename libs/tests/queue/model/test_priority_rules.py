"""The order of ready messages: by priority, with a turn for the oldest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import InvalidArgument
from bokiqueue.model.events import Id
from bokiqueue.model.priority_rules import HIGHEST, OLDEST_EVERY, ReadyMessages, check_priority


def taken(ready: ReadyMessages) -> Id:
    found = ready.next()
    assert found is not None
    ready.taken()
    return found


@given(st.lists(st.integers(0, 3), max_size=60))
def test_each_is_taken_once_and_the_oldest_waits_for_seven_at_most(priorities: list[int]) -> None:
    ready = ReadyMessages()
    waiting = {Id(seqnum, 0): priority for seqnum, priority in enumerate(priorities, 1)}
    for id, priority in waiting.items():
        ready.add(id, priority)
    passed = 0
    while waiting:
        oldest, highest = min(waiting), max(waiting.values())
        found = taken(ready)
        assert found == oldest or waiting[found] == highest
        assert found == min(id for id, priority in waiting.items() if priority == waiting[found])
        passed = 0 if found == oldest else passed + 1
        assert passed < OLDEST_EVERY
        del waiting[found]
    assert ready.next() is None


def test_what_is_ready_at_another_priority_comes_by_the_higher_one() -> None:
    ready = ReadyMessages()
    ready.add(Id(1, 0), 0)
    ready.add(Id(2, 0), 1)
    ready.add(Id(1, 0), 5)
    assert [taken(ready) for _ in range(3)] == [Id(1, 0), Id(2, 0), Id(1, 0)], "whoever takes it twice has to look"


def test_what_is_discarded_does_not_come() -> None:
    ready = ReadyMessages()
    for number, priority in enumerate((0, 3, 3), 1):
        ready.add(Id(number, 0), priority)
    ready.discard(Id(2, 0))
    assert sorted(ready) == [Id(1, 0), Id(3, 0)]
    assert [taken(ready), taken(ready), ready.next()] == [Id(3, 0), Id(1, 0), None]


@pytest.mark.parametrize("priority", [-1, HIGHEST + 1, 1.0, True])
def test_wrong_priorities_are_refused(priority: int) -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        check_priority(priority)
