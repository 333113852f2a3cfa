"""Contributions of libraries to one record, and its bounds."""

from __future__ import annotations

import pytest

from boki_common.errors import InvalidArgument
from bokilib.errors import AtomicTooLarge, WrongBook
from bokilib.records.contribution import (
    BookIdentity,
    Contribution,
    Origin,
    check_fits,
    check_in_book,
    check_part,
    fits,
    joined,
)
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


def of(book: BookIdentity | None, maker: str = "queue 'emails'") -> Contribution:
    return Contribution(("a",), {}, (Did("1"),), Origin(book, maker))


SHOP = BookIdentity(1, "c1", "shop")
SAME = (SHOP, BookIdentity(1, "c1", "shop"), BookIdentity(1, "c1", 1), BookIdentity(1, None, "shop"), None)
OTHERS = (
    (BookIdentity(2, "c1", "mail"), "expected a part for book 'shop', found one of queue 'emails' in book 'mail': "),
    (BookIdentity(2, None, 2), "expected a part for book 'shop', found one of queue 'emails' in book 2: "),
    (
        BookIdentity(1, "c2", "shop"),
        "for book 'shop' of cluster c1, found one of queue 'emails' in book 'shop' of cluster c2: ",
    ),
)


@pytest.mark.parametrize("book", SAME)
def test_a_part_of_the_same_book_is_taken_as_far_as_books_are_known(book: BookIdentity | None) -> None:
    for part, record in ((of(book), SHOP), (of(SHOP), book), (Contribution(), book)):
        check_part(part, record)
        check_in_book("a store", record, part.origin or Origin(None, "nothing"))
    assert joined([of(SHOP), Contribution(), of(book, "another")]).tags == ("a",)


@pytest.mark.parametrize(("book", "why"), OTHERS)
def test_a_part_of_another_book_is_refused_by_name(book: BookIdentity, why: str) -> None:
    with pytest.raises(WrongBook, match=why) as raised:
        check_part(of(book), SHOP)
    assert raised.value.definite and not raised.value.retryable
    with pytest.raises(WrongBook, match="found one in book "):
        check_in_book("a store", book, Origin(SHOP, "queue 'emails'"))
    with pytest.raises(WrongBook):
        joined([of(SHOP), Contribution(), of(book)])
    with pytest.raises(WrongBook):
        check_part(joined([Contribution(), of(None), of(book), of(None)]), SHOP)


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
