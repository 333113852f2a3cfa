"""Blocking reads that Ctrl-C, or an alarm of a test runner, cuts off: no record is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import boki
import boki.sync
from boki_cli.testing.commands import memory_cluster
from boki_common.testing.cut_off import cut_off

pytestmark = pytest.mark.blocking_allowed


@pytest.fixture
def book() -> Iterator[boki.sync.Book]:
    with memory_cluster() as url, boki.sync.connect(url) as client:
        yield client.book("shop")


def data(items: list[boki.Record | boki.Gap]) -> list[bytes]:
    return [bytes(item.data) for item in items if isinstance(item, boki.Record)]


def test_records(book: boki.sync.Book) -> None:
    records = book.read(follow=True)
    for number in range(3):
        with cut_off(book.run):
            next(records)
        book.append(b"%d" % number)
        assert data([next(records)]) == [b"%d" % number]


def test_a_cursor(book: boki.sync.Book) -> None:
    cursor = book.read(tags=["x"], follow=True)
    with cut_off(book.run):
        next(cursor)
    first = book.append(b"1", tags=["x"])
    assert data([next(cursor)]) == [b"1"]
    assert cursor.position >= first
    with cut_off(book.run):
        cursor.next_batch()
    book.append(b"2", tags=["x"])
    assert data(cursor.next_batch()) == [b"2"]


def test_records_that_came_when_nobody_waited_are_not_passed_over(book: boki.sync.Book) -> None:
    cursor = book.read(tags=["x"], follow=True)
    first = book.append(b"1", tags=["x"])
    cursor._items._taken.extend(
        book.run(cursor._next())
    )  # as of a coroutine that ended when its thread was interrupted
    assert cursor.position < first
    assert data([next(cursor)]) == [b"1"]
    assert cursor.position >= first
