"""Trims of many streams by few commands."""

from __future__ import annotations

from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.retention import trimmer as module
from bokilib.retention.trimmer import Trimmer
from bokilib.testing import FaultyBook


class Seen(FaultyBook):
    """A book that keeps the pairs of each trim.

    Attributes:
        trims: the marks of each command, and whether it forgets.
    """

    def __init__(self, book: boki.Book) -> None:
        super().__init__(book)
        self.trims: list[tuple[dict[str | int | None, int], bool]] = []

    async def trim(self, pairs: Any, *, forget: bool = False) -> None:
        self.trims.append((dict(pairs), forget))
        await super().trim(pairs, forget=forget)


async def test_marks_leave_together_and_the_highest_of_a_stream_counts(book: boki.Book) -> None:
    seqnums = [await book.append(b"", tags=["a", "b"]) for _ in range(4)]
    counted = FaultyBook(book)
    trimmer = Trimmer(counted)
    for seqnum in (seqnums[1], seqnums[2], seqnums[0]):
        trimmer.add("a", seqnum)
    trimmer.add("b", seqnums[3])
    assert await trimmer.flush() == 1
    assert len(trimmer) == 0 and len(counted.operations) == 1
    assert [item.seqnum async for item in book.read("a")] == seqnums[2:]
    assert [item.seqnum async for item in book.read("b")] == seqnums[3:]
    assert await trimmer.flush() == 0


async def test_a_command_has_512_streams_at_most(book: boki.Book) -> None:
    await book.append(b"x")
    seen = Seen(book)
    trimmer = Trimmer(seen)
    for number in range(1_025):
        trimmer.add(f"t{number}", 7)
    assert await trimmer.flush() == 3
    assert [len(marks) for marks, _ in seen.trims] == [512, 512, 1]


async def test_to_forget_is_a_command_of_its_own(book: boki.Book) -> None:
    seqnum = await book.append(b"", tags=["a"])
    seen = Seen(book)
    trimmer = Trimmer(seen)
    trimmer.add("a", seqnum + 1, forget=True)
    trimmer.add("b", seqnum)
    assert await trimmer.flush() == 2
    assert seen.trims == [({"b": seqnum}, False), ({"a": seqnum + 1}, True)]


async def test_what_fails_is_kept(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("b")
    await book.append(b"")

    class Down(FaultyBook):
        async def trim(self, pairs: Any, *, forget: bool = False) -> None:
            raise boki.Unreachable("down")

    down = Trimmer(Down(book))
    down.add("a", 7)
    with pytest.raises(boki.Unreachable):
        await down.flush()
    assert len(down) == 1


async def test_it_is_bounded(book: boki.Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING", 2)
    trimmer = Trimmer(book)
    for tag in ("a", "b", "c", "a"):
        trimmer.add(tag, len(trimmer) + 5)
    assert len(trimmer) == 2


async def test_what_was_added_together_is_never_split(book: boki.Book) -> None:
    """A command forgets at one place of the log: an id of which only some streams are forgotten would have no beginning."""
    await book.append(b"x")
    seen = Seen(book)
    trimmer = Trimmer(seen)
    for number in range(400):
        trimmer.add_together({f"own{number}": 7, f"wf{number}": 8, f"part{number % 3}": number + 1}, forget=True)
    assert await trimmer.flush() == 3
    for number in range(400):
        (where,) = [marks for marks, _ in seen.trims if f"own{number}" in marks]
        assert where[f"wf{number}"] == 8 and f"part{number % 3}" in where
    assert max(len(marks) for marks, _ in seen.trims) <= 512
    assert len(trimmer) == 0


async def test_of_a_stream_in_several_companies_the_highest_mark_counts(book: boki.Book) -> None:
    seqnums = [await book.append(b"", tags=["a", "b"]) for _ in range(4)]
    trimmer = Trimmer(book)
    trimmer.add_together({"a": seqnums[1], "b": seqnums[1]})
    trimmer.add("a", seqnums[3])
    trimmer.add_together({"b": seqnums[1], "a": seqnums[2]})
    assert await trimmer.flush() == 1
    assert [item.seqnum async for item in book.read("a")] == seqnums[3:]
    assert [item.seqnum async for item in book.read("b")] == seqnums[1:]
