"""Pushes and pops in every order, with a checkpoint at any place, give the result of a plain list."""

from __future__ import annotations

import itertools

import msgspec

from bokiqueue.model.events import START, Item
from bokiqueue.model.pop_state import PopState, decode


def item(number: int) -> Item:
    return Item(msgspec.Raw(msgspec.msgpack.encode(number)))


def numbers(state: PopState) -> dict[int, int | None]:
    return {
        place: None if taken is None else msgspec.msgpack.decode(taken.body) for place, taken in state.taken.items()
    }


def test_in_every_order_a_pop_takes_the_oldest_that_is_before_it() -> None:
    for story in itertools.product(("push", "two", "pop"), repeat=6):
        state, plain, expected = PopState(START, 0), list[int](), dict[int, int | None]()
        for place, what in enumerate(story, 1):
            if what == "pop":
                expected[place] = plain.pop(0) if plain else None
                state.popped(place, mine=True)
            else:
                new = [place * 10 + number for number in range(1 if what == "push" else 2)]
                plain += new
                state.pushed(place, tuple(item(number) for number in new))
        assert numbers(state) == expected
        assert len(state) == len(plain)


def test_from_a_checkpoint_at_any_place_it_is_the_same() -> None:
    for story in itertools.product(("two", "pop"), repeat=6):
        whole = PopState(START, 0)
        states = [(0, whole.encode())]
        for place, what in enumerate(story, 1):
            if what == "pop":
                whole.popped(place, mine=True)
            else:
                whole.pushed(place, (item(place), item(place + 100)))
            states.append((place, whole.encode()))
        for covers, data in states:
            state = decode(data, covers)
            for place, what in enumerate(story, 1):
                if what == "two" and place >= state.head.seqnum:
                    state.pushed(place, (item(place), item(place + 100)))
                elif what == "pop" and place > covers:
                    state.popped(place, mine=True)
            late = {place: taken for place, taken in numbers(whole).items() if place > covers}
            assert numbers(state) == late, (story, covers)


def test_pushes_that_are_read_early_are_not_taken_by_pops_before_them() -> None:
    state = PopState(START, 0)
    state.pushed(5, (item(1),))
    state.popped(3, mine=True)
    state.popped(6, mine=True)
    assert numbers(state) == {3: None, 6: 1}


def test_pops_go_by_priority_and_a_checkpoint_knows_what_is_taken_above_its_head() -> None:
    state = PopState(START, 0)
    messages = {seqnum: Item(msgspec.Raw(b"\xc0"), None, None, 0, None, seqnum % 3) for seqnum in range(1, 25)}
    for seqnum, one in messages.items():
        state.pushed(seqnum, (one,))
    for place in range(100, 110):
        state.popped(place, mine=False)
    again = decode(state.encode(), state.position)
    for seqnum, one in messages.items():
        if seqnum >= again.head.seqnum:
            again.pushed(seqnum, (one,))
    assert again.waiting() == state.waiting() and len(again) == 14
    for place in range(200, 216):
        for either in (state, again):
            either.popped(place, mine=True)
    assert again.taken == state.taken
    assert again.encode() == state.encode()
