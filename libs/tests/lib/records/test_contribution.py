"""Contributions of libraries to one record, and its bounds."""

from __future__ import annotations

import pytest

from boki_common.errors import InvalidArgument
from bokilib.errors import AtomicTooLarge
from bokilib.records.contribution import Contribution, check_fits, fits, joined
from bokilib.records.events import Event


class Did(Event, tag="mine.did", frozen=True):
    id: str


def test_tags_once_events_in_order_and_the_lowest_expectation() -> None:
    one = Contribution(("a", "b"), {"a": 5, "f": 3}, (Did("1"),))
    other = Contribution(("b", "c"), {"a": 4, "c": None, "f": 3}, (Did("2"), Did("3")))
    assert joined([one, other]) == Contribution(
        ("a", "b", "c"), {"a": 4, "f": 3, "c": None}, (Did("1"), Did("2"), Did("3"))
    )
    assert joined([]) == Contribution()


def test_an_id_that_begins_twice_in_one_record_is_refused() -> None:
    begins = Contribution(("own", "x"), {"own": None}, (Did("1"),))
    assert joined([begins, Contribution(("x",), {"x": None})]).expect == {"own": None, "x": None}
    with pytest.raises(InvalidArgument, match="'own' twice"):
        joined([begins, begins])


@pytest.mark.parametrize(
    ("what", "one", "size"),
    [
        ("tags", Contribution(tuple(map(str, range(256)))), 0),
        ("expectations", Contribution((), {str(number): 1 for number in range(257)}), 0),
        ("bytes", Contribution(), 2**19 + 1),
    ],
)
def test_what_is_too_much_is_named(what: str, one: Contribution, size: int) -> None:
    assert not fits(one, size)
    with pytest.raises(AtomicTooLarge, match=what) as raised:
        check_fits(one, size)
    assert raised.value.found == raised.value.expected + 1


def test_what_just_fits() -> None:
    one = Contribution(tuple(map(str, range(255))), {str(number): 1 for number in range(256)})
    assert fits(one, 2**19)
    check_fits(one, 2**19)
