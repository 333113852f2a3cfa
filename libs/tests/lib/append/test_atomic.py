"""Effects of several libraries in one append: all of them or none."""

from __future__ import annotations

import pytest

import boki
from bokilib.append.atomic import Atomic
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, Picker


class Did(Event, tag="mine.did", frozen=True):
    id: str


class Theirs(Event, tag="theirs.did", frozen=True):
    id: str


async def test_parts_of_two_libraries_are_one_record(book: boki.Book) -> None:
    log = Log(book)
    snapshot = await book.now()
    async with Atomic(log) as tx:
        tx.add(Contribution(("a",), {"a": snapshot}, (Did("x"),)))
        tx.add(Contribution(("b",), {"f": snapshot}, (Theirs("y"),)))
    assert log.appends == 1
    record = await book.read_at(tx.seqnum)
    assert record is not None and record.tags == ("a", "b")
    assert Picker[Theirs]("theirs", (Theirs,)).of(tx.seqnum, await log.open(record)) == [Theirs("y")]


async def test_when_one_part_fails_nothing_of_any_happened(book: boki.Book) -> None:
    log = Log(book)
    snapshot = await book.now()
    await book.append(b"", tags=["f"])
    with pytest.raises(boki.Conflict):
        async with Atomic(log) as tx:
            tx.add(Contribution(("a",), {}, (Did("x"),)))
            tx.add(Contribution(("b",), {"f": snapshot}, (Theirs("y"),)))
    assert await book.read_prev("a", consistency="linearizable") is None
    assert await book.read_prev("b") is None


async def test_an_error_inside_appends_nothing_and_neither_does_an_empty_one(book: boki.Book) -> None:
    log = Log(book)
    with pytest.raises(KeyError):
        async with Atomic(log) as tx:
            tx.add(Contribution(("a",), {}, (Did("x"),)))
            raise KeyError("mine")
    async with Atomic(log) as empty:
        empty.add(Contribution((), {"a": await book.now()}))
    assert (log.appends, empty.seqnum) == (0, 0)


async def test_what_has_ended_takes_no_more(book: boki.Book) -> None:
    tx = Atomic(Log(book))
    await tx.commit()
    with pytest.raises(boki.ClosedError):
        tx.add(Contribution())
    with pytest.raises(boki.ClosedError):
        await tx.commit()


async def test_the_bounds_of_one_record(book: boki.Book) -> None:
    log = Log(book)
    snapshot = await book.now()
    tags = [f"t{number}" for number in range(255)]
    async with Atomic(log) as tx:
        for tag in tags:
            tx.add(Contribution((tag,), {tag: snapshot}, (Did("x"),)))
        tx.add(Contribution((), {"fence": snapshot}))
    assert tx.seqnum
    for too_much in (Contribution(("more",)), Contribution((), {"more": snapshot, "and more": snapshot})):
        with pytest.raises(AtomicTooLarge):
            async with Atomic(log) as tx:
                tx.add(Contribution(tuple(tags), dict.fromkeys(tags, snapshot), (Did("x"),)))
                tx.add(too_much)
    assert log.appends == 1
