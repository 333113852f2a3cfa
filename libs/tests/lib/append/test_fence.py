"""Fences: one holder at a time after any crash and any race."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.append.fence import PICKER, Claimed, Fence
from bokilib.append.log import Incarnations, Log
from bokilib.errors import Fenced
from bokilib.ports import BookPort
from bokilib.records.conflict_rules import Claim, scope_of
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, Picker
from bokilib.testing import UNKNOWNS, Fault, FaultyBook, crash_everywhere, start_anywhere

TAG = "flow/own/x"


class Wrote(Event, tag="mine.wrote", frozen=True):
    id: str
    claim: int


WROTE = Picker[Wrote]("mine", (Wrote,))


def fence_of(book: BookPort, who: str) -> tuple[Log, Fence]:
    log = Log(book)
    return log, Fence(log, TAG, "x", who=who)


async def test_who_claims_second_takes_over_and_the_first_writes_no_more(book: boki.Book) -> None:
    log, first = fence_of(book, "first")
    claim = await first.take(await first.current())
    await log.append(Contribution(("work",), first.expect, (Wrote("1", claim),)))
    other, second = fence_of(book, "second")
    found = await second.current()
    assert found is not None and (found.seqnum, found.who) == (claim, "first")
    assert await second.take(found) > claim
    with pytest.raises(boki.Conflict) as conflict:
        await log.append(Contribution(("work",), first.expect, (Wrote("2", claim),)))
    assert first.moved(conflict.value)
    assert (first.over().tag, first.over().claim) == (TAG, claim)
    await other.append(Contribution(("work",), second.expect, (Wrote("3", second.claim),)))


async def test_a_conflict_on_something_else_does_not_end_the_claim(book: boki.Book) -> None:
    log, fence = fence_of(book, "me")
    await fence.take(await fence.current())
    before = await book.now()
    await book.append(b"", tags=["data"])
    with pytest.raises(boki.Conflict) as conflict:
        await log.append(Contribution(("work",), {**fence.expect, "data": before}, (Wrote("1", 0),)))
    assert not fence.moved(conflict.value)


async def test_of_many_who_want_it_one_gets_it(book: boki.Book) -> None:
    contenders = [fence_of(book, f"c{number}")[1] for number in range(5)]
    ended = await asyncio.gather(*(fence.take(None) for fence in contenders), return_exceptions=True)
    held = [claim for claim in ended if isinstance(claim, int)]
    assert len(held) == 1
    assert [fenced.claim for fenced in ended if isinstance(fenced, Fenced)] == held * 4


async def test_a_claim_of_another_fence_in_the_stream_is_not_taken_for_ones_own(book: boki.Book) -> None:
    """Two long names may share a tag, so readers compare the name."""
    log = Log(book)
    other = Fence(log, TAG, "other", who="other")
    await other.take(None)
    fence = Fence(log, TAG, "x", who="me")
    assert await fence.current() is None
    claim = await fence.take(None)
    await other.take(await other.current())
    current = await fence.current()
    assert current is not None and current.seqnum == claim


@pytest.mark.parametrize("kind", UNKNOWNS)
async def test_a_claim_whose_answer_was_lost_is_the_holders(book: boki.Book, kind: str) -> None:
    """The naive rule, that a Conflict means that another process won, leaves a fence without a holder."""
    for at in range(6):
        faulty = FaultyBook(book, Fault(at, kind))  # type: ignore[arg-type]
        _, fence = fence_of(faulty, f"me{kind}{at}")
        claim = await fence.take(await fence.current())
        current = await fence.current()
        assert current is not None and (current.seqnum, current.who) == (claim, f"me{kind}{at}")


async def test_ones_own_claim_that_came_between_is_ones_own(cluster: MemoryCluster) -> None:
    """A Conflict caused by the process's own record: the holder follows from the state of the stream, not from the Conflict."""
    book = (await cluster.connect()).book("b")
    fence = fence_of(book, "me")[1]
    last = await fence.current()
    claim = await fence.take(last)
    fence.claim = 0
    assert await fence.take(last) == claim


async def holding(book: BookPort, who: str) -> None:
    """Claim the fence, then append two records under the claim."""
    log, fence = fence_of(book, who)
    claim = await fence.take(await fence.current())
    for number in range(2):
        await log.append(Contribution(("work",), fence.expect, (Wrote(f"{who}{number}", claim),)), settle=True)


async def check(book: boki.Book) -> None:
    """Assert that no record under a claim is in the log behind a newer claim."""
    log = Log(book)
    claims, at_most = [], 0
    async for item in book.read(start=1):
        assert isinstance(item, boki.Record)
        envelope = await log.open(item)
        claims += [item.seqnum for _ in PICKER.of(item.seqnum, envelope)]
        for wrote in WROTE.of(item.seqnum, envelope):
            assert wrote.claim == claims[-1]
            at_most += 1
    assert claims, "somebody holds it"


async def test_at_every_crash_the_next_one_takes_over_and_nothing_old_comes_after() -> None:
    explored = await crash_everywhere(
        lambda book: holding(book, "a"), lambda book: holding(book, "b"), check, pairs=True
    )
    assert explored.operations >= 4 and explored.runs > 40
    await crash_everywhere(lambda book: holding(book, "a"), check=check, kinds=UNKNOWNS)


async def test_a_second_process_at_any_point() -> None:
    async def program(book: BookPort) -> None:
        try:
            await holding(book, "a")
        except (boki.Conflict, Fenced):
            pass  # it was taken over, and stops

    explored = await start_anywhere(program, lambda book: holding(book, "b"), check)
    assert explored.runs >= explored.operations


async def test_a_claim_is_adopted_only_by_the_object_that_appended_it(
    book: boki.Book,
) -> None:
    log = Log(book)
    earlier, later = (Fence(log, TAG, "x", who="me") for _ in range(2))
    first = await earlier.take(None)
    claim = await earlier.take(earlier.held)
    for stale in (None, Claim(first, log.by, "me", earlier.token)):
        with pytest.raises(Fenced):
            await later.take(stale)
        assert later.other == Claim(claim, log.by, "me", earlier.token)
    assert await earlier.take(None) == claim, "found by reading: the answer may have been lost"
    assert await later.take(later.other) > claim


def test_tokens_are_counted_so_that_a_run_that_is_repeated_writes_the_same() -> None:
    those = Incarnations("0a")
    tokens = [those.fence_token(""), those.fence_token("member"), those.fence_token("")]
    assert tokens == ["1", "member/2", "3"]
    assert [scope_of(token) for token in tokens] == ["", "member", ""]


async def test_a_claim_of_an_older_version_is_read_and_taken_over(book: boki.Book) -> None:
    """Older versions wrote the token of the process, or none."""
    log = Log(book)
    for token in ("", log.by):
        at = await log.append(Contribution((TAG,), {}, (Claimed("x", "me", token),)))
        fence = Fence(log, TAG, "x", who="me")
        current = await fence.current()
        assert current is not None and current == Claim(at, log.by, "me", token) and not fence.is_mine(current)
        with pytest.raises(Fenced):
            await fence.take(None)
        assert await fence.take(current) > at
