"""Figures 6 and 7 of the paper: the golden log, and conditional appends against the oracle on random histories."""

from __future__ import annotations

import random

import pytest

import boki
from boki.testing import MemoryCluster
from libs.tests.flow.figure_7 import LockRecord, chain, first, holders, parse

GOLDEN = "0 - | 1 a 0 | 2 b 0 | 3 - 1 | 4 c 0 | 5 d 3 | 6 e 3 | 7 - 5 | 8 f 7 | 9 g 7 | 10 - 8 | 11 h 7"


def test_the_log_of_figure_7_gives_the_lock_to_a_d_and_f() -> None:
    rows = parse(GOLDEN)
    assert holders(rows) == ["a", "d", "f"]
    assert [row.seqnum for row in chain(rows)] == [0, 1, 3, 5, 7, 8, 10]
    assert all(bool(one.holder) != bool(other.holder) for one, other in zip(chain(rows), chain(rows)[1:], strict=False))


async def proposed(book: boki.Book, tag: str, after: int | None) -> int | None:
    """A record that follows another one, if nothing else did; where."""
    try:
        return await book.append(b"", tags=[tag], expect={tag: after})
    except boki.Conflict:
        return None


@pytest.mark.parametrize("seed", range(20))
async def test_locks_by_conditional_appends_are_those_of_the_paper(cluster: MemoryCluster, seed: int) -> None:
    """Clients look at a lock, are away for a while, and then want it, or give back what they had: the same in both."""
    choose, book = random.Random(seed), (await cluster.connect()).book("b")
    first_row = LockRecord(0, "", None)
    rows, ours = [first_row], {0: await proposed(book, "lock", None)}
    mine: dict[str, LockRecord] = {}
    looked: dict[str, LockRecord] = {}
    for number in range(1, 40):
        who = choose.choice("abcd")
        last = chain(rows)[-1]
        if who in mine:
            row = LockRecord(number, "", mine.pop(who).seqnum)
        elif who in looked:
            row = LockRecord(number, who, looked.pop(who).seqnum)
        else:
            if not last.holder:
                looked[who] = last
            continue
        rows.append(row)
        assert row.prev is not None
        ours[number] = await proposed(book, "lock", ours[row.prev])
        counts = chain(rows)[-1] is row
        assert (ours[number] is not None) == counts, (seed, rows)
        if counts and row.holder:
            mine[who] = row
    assert len(holders(rows)) > 3


async def test_of_executors_of_one_step_the_first_record_wins_in_both(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("b")
    won = [name for name in "cab" if await proposed(book, "step", None) is not None]
    assert won == [first("cab")]
