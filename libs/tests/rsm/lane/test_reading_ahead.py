"""A full partition: its machines take what they handle now, nothing overtakes what is not kept, and all is handled in the end."""

from __future__ import annotations

import itertools

from bokirsm.lane.reading_ahead import ReadingAhead
from bokirsm.model.events import MessageId

M = "g/9/m"


class Reader:
    """A partition with messages to one machine, which is read ahead.

    Attributes:
        kinds: of the messages, by number.
        taken: the numbers of those that were taken.
    """

    def __init__(self, kinds: str) -> None:
        self.kinds = kinds
        self.ahead = ReadingAhead(0, 0)
        self.taken: list[int] = []

    def read(self, start: int, state: str, *, rests: bool, has_room: bool = False) -> None:
        """Read from a message on. A state is the kinds that it defers. What is taken is not handled yet."""
        for number in range(start, len(self.kinds)):
            if number in self.taken:
                continue
            takes = self.ahead.takes(
                M,
                MessageId(number + 1, 0),
                rests=rests,
                state=state,
                defers=self.kinds[number] in state,
                has_room=has_room,
            )
            if takes:
                self.taken.append(number)
                rests = False


def test_a_machine_that_rests_takes_the_first_message_that_it_does_not_defer() -> None:
    one = Reader("aabab")
    one.read(0, "a", rests=True)
    assert one.taken == [2] and M in one.ahead
    assert one.ahead.wakes(M, "a") == 4, "what is behind it is looked at once it rests again"
    one.read(3, "a", rests=True)
    assert one.taken == [2, 4] and not one.ahead.wakes(M, "a"), "the others are deferred"


def test_in_another_state_the_first_message_is_looked_at_again() -> None:
    one = Reader("aab")
    one.read(0, "a", rests=True)
    assert one.taken == [2]
    assert one.ahead.wakes(M, "b") == 1
    one.read(0, "b", rests=True)
    assert one.taken == [2, 0] and one.ahead.wakes(M, "b") == 2


def test_a_machine_that_does_not_rest_takes_nothing_behind_what_it_passed_over() -> None:
    one = Reader("ab")
    one.read(0, "", rests=False)
    assert not one.taken and one.ahead.wakes(M, "") == 1
    one.read(1, "", rests=True)
    assert not one.taken, "the first one comes first"
    one.read(0, "", rests=True)
    assert one.taken == [0]


def test_a_machine_that_is_behind_with_nothing_takes_messages_while_there_is_room() -> None:
    one = Reader("abc")
    one.read(0, "", rests=False, has_room=True)
    assert one.taken == [0, 1, 2] and M not in one.ahead


def test_messages_are_taken_as_from_an_inbox_in_memory() -> None:
    """For all orders of a few kinds of messages: `a` and `b` wait for each other's states, `x` and `y` change the state."""
    after = {"x": "a", "y": "b", "z": ""}
    for kinds in ("".join(one) for length in (1, 2, 3, 4, 5) for one in itertools.product("abxyz", repeat=length)):
        expected = in_memory(kinds, after)
        one, state, handled = Reader(kinds), "ab", ""
        start = 0
        while True:
            before = len(one.taken)
            one.read(start, state, rests=True)
            assert len(one.taken) <= before + 1 or not state
            for number in one.taken[before:]:
                handled += kinds[number]
                state = after.get(kinds[number], state)
            woken = one.ahead.wakes(M, state)
            if not woken:
                break
            start = woken - 1
        assert handled == expected, kinds


def in_memory(kinds: str, after: dict[str, str]) -> str:
    """Return the messages that a machine handles which keeps all, in order: the first one each time that it does not defer."""
    left, state, handled = list(kinds), "ab", ""
    while (one := next((kind for kind in left if kind not in state), None)) is not None:
        left.remove(one)
        handled += one
        state = after.get(one, state)
    return handled
