"""Marks of bookies: what may follow what, and that each write is at exactly the version that was seen."""

from __future__ import annotations

import msgspec
import pytest

from boki_common.bookkeeper.bookie_mark import (
    DRAINING,
    MARKS,
    RETIRED,
    UNMARKED,
    BookieMark,
    cancelled,
    draining,
    kept_read_only,
    mark_path,
    retired,
)
from boki_common.bookkeeper.bookie_marks import read_mark, read_marks, write_mark
from boki_common.errors import BadVersion, CorruptData, InvalidArgument
from boki_common.json_node import NO_NODE
from boki_common.metadata.memory import Fault, MemoryStore
from boki_common.metadata.store import ensure_path
from boki_common.testing.machine import CountingRandom


def test_what_follows_what() -> None:
    assert draining(BookieMark(), "b").state == DRAINING
    noted = msgspec.structs.replace(draining(BookieMark(), "b"), refuses=True, ledgers=3)
    assert draining(noted, "b") == noted, "a drain that runs goes on"
    assert retired(noted).state == RETIRED
    with pytest.raises(InvalidArgument, match="retired already"):
        draining(retired(noted), "b")
    for mark in (BookieMark(), retired(noted)):
        with pytest.raises(InvalidArgument, match="no drain to cancel"):
            cancelled(mark, "b")


def test_a_drain_keeps_the_word_of_a_person_and_nothing_else() -> None:
    marked = draining(kept_read_only(BookieMark(), True), "b")
    noted = msgspec.structs.replace(marked, refuses=True, empty=True, ledgers=4, in_limbo=True)
    assert cancelled(noted, "b") == BookieMark(read_only=True)


async def test_a_mark_is_written_at_the_version_that_was_seen(store: MemoryStore) -> None:
    assert await read_mark(store, "b1") == UNMARKED
    assert UNMARKED.version == NO_NODE
    rng = CountingRandom()
    first = await write_mark(store, "b1", draining(BookieMark(), "b1"), seen=UNMARKED, rng=rng)
    assert await read_mark(store, "b1") == first
    with pytest.raises(BadVersion):
        await write_mark(store, "b1", BookieMark(), seen=UNMARKED, rng=rng)
    second = await write_mark(store, "b1", cancelled(first.mark, "b1"), seen=first, rng=rng)
    with pytest.raises(BadVersion):
        await write_mark(store, "b1", retired(first.mark), seen=first, rng=rng)
    await write_mark(store, "b0", BookieMark(read_only=True), seen=UNMARKED, rng=rng)
    assert [(bookie, seen.mark.state) for bookie, seen in (await read_marks(store)).items()] == [
        ("b0", "active"),
        ("b1", "active"),
    ]
    assert list((await read_marks(store)).values())[1] == second


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
async def test_a_lost_answer_is_settled(store: MemoryStore, fault: Fault) -> None:
    first = await write_mark(store, "b1", BookieMark(read_only=True), seen=UNMARKED, rng=CountingRandom())
    store.fail_next_write(fault)
    second = await write_mark(store, "b1", BookieMark(), seen=first, rng=CountingRandom(5))
    assert await read_mark(store, "b1") == second
    assert second.version == 1


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"state": "away"}', b'{"version": 2}', b'{"ledgers": "x"}'])
async def test_what_is_no_mark_is_refused(store: MemoryStore, value: bytes) -> None:
    await ensure_path(store, MARKS)
    await store.create(mark_path("b1"), value)
    with pytest.raises(CorruptData, match=f"the mark of a bookie in {mark_path('b1')}"):
        await read_mark(store, "b1")
