"""When freed memory goes back to the system."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common.limits import MIB
from boki_common.runtime.spare_memory import LOOKS, SPARE_BYTES, SpareMemory

LIBRARIES = 40 * MIB


def settled() -> SpareMemory:
    spare = SpareMemory()
    spare.given_back(LIBRARIES + 20 * MIB, 20 * MIB)
    return spare


def test_memory_that_was_free_at_every_look_goes_back() -> None:
    spare = settled()
    looks = [spare.look(LIBRARIES + 60 * MIB, 60 * MIB - SPARE_BYTES) for _ in range(LOOKS)]
    assert looks == [False] * (LOOKS - 1) + [True]


def test_memory_that_was_needed_once_meanwhile_stays() -> None:
    spare = settled()
    for _ in range(10):
        looks = [spare.look(LIBRARIES + 60 * MIB, 20 * MIB) for _ in range(LOOKS - 1)]
        assert not any([*looks, spare.look(LIBRARIES + 60 * MIB, 60 * MIB)]), "a burst now and then keeps what it needs"


def test_a_little_is_not_worth_it() -> None:
    spare = settled()
    assert not any(spare.look(LIBRARIES + 20 * MIB, 20 * MIB - SPARE_BYTES + 1) for _ in range(3 * LOOKS))


def test_what_could_not_be_given_back_is_not_asked_for_again() -> None:
    spare = settled()
    grown = LIBRARIES + 30 * MIB  # of the interpreter's arenas, which the allocator cannot give back
    first = [spare.look(grown + 20 * MIB, 20 * MIB) for _ in range(LOOKS)]
    assert first[-1]
    spare.given_back(grown + 20 * MIB, 20 * MIB)
    assert not any(spare.look(grown + 20 * MIB, 20 * MIB) for _ in range(3 * LOOKS))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200)), max_size=30))
def test_it_is_the_least_of_the_last_looks(looks: list[tuple[int, int]]) -> None:
    spare, free = SpareMemory(), list[int]()
    for resident, in_use in looks:
        free = [*free, (resident - in_use) * MIB][-LOOKS:]
        assert spare.look(resident * MIB, in_use * MIB) is (len(free) == LOOKS and min(free) >= SPARE_BYTES)
