"""Staged transactions: their owner says when they commit, and adds a part that is made of what the body returned."""

from __future__ import annotations

import asyncio

import pytest

from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import VirtualTimeLoop
from bokilib.errors import AtomicTooLarge, Fenced
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokistore import BokiStore, StoreSettings, Transaction


class Noted(Event, tag="mine.noted", frozen=True):
    id: str
    result: int


def noted(result: int) -> Contribution:
    return Contribution(("mine/notes",), {}, (Noted("n", result),))


async def bump(tx: Transaction) -> int:
    before = await tx["x"].get("n", 0)
    assert isinstance(before, int)
    tx["x"].set("n", before + 1)
    return before


async def test_it_commits_with_its_owners_part_and_others_of_the_process_in_one_record(store: BokiStore) -> None:
    await store.object("x").set("n", 0)
    staged = [store.stage(bump) for _ in range(20)]
    assert [await one.ran() for one in staged] == [0] * 20, "none of them is committed"
    before = store.log.appends
    made: list[int] = []

    def part(result: int) -> Contribution:
        made.append(result)
        return noted(result)

    found = await asyncio.gather(*(one.commit(part) for one in staged), store.transact(bump))
    results = [one.result for one in found[:-1] if not isinstance(one, int | None)]
    assert results == list(range(20)) and found[-1] == 20
    assert store.log.appends <= before + 2, "the plain one began after them"
    assert len({one.seqnum for one in found[:-1] if not isinstance(one, int | None)}) == 1
    assert sorted(set(made)) == list(range(20)), "made again where the body ran again"


async def test_an_owner_need_not_wait_for_a_body_that_runs_for_long(store: BokiStore) -> None:
    await store.object("x").set("n", 0)
    go, slow = asyncio.Event(), False

    async def body(tx: Transaction) -> int:
        found = await bump(tx)
        if slow:
            await go.wait()
        return found

    staged = store.stage(body)
    await staged.ran()
    await store.transact(bump)
    slow = True
    assert await staged.commit(noted) is None, "it must run again, and that takes long"
    again = asyncio.ensure_future(staged.ran())
    await store.transact(bump)
    go.set()
    committed = None
    while committed is None:
        await again
        committed = await staged.commit(noted)
        again = asyncio.ensure_future(staged.ran())
    again.cancel()
    assert committed.result == 2 and await store.object("x").get("n") == 3


async def test_a_fence_that_moved_drops_its_transaction_alone(store: BokiStore) -> None:
    await store.log.append(Contribution(("mine/fence",), {}, (Noted("f", 1),)))
    fenced, other = store.stage(bump), store.stage(bump)
    await asyncio.gather(fenced.ran(), other.ran())
    lost, committed = await asyncio.gather(
        fenced.commit(lambda result: Contribution((), {"mine/fence": None}, (Noted("n", result),))),
        other.commit(noted),
        return_exceptions=True,
    )
    assert isinstance(lost, Fenced)
    while committed is None:
        await other.ran()
        committed = await other.commit(noted)
    assert await store.object("x").get("n") == 1


async def test_what_its_body_raises_and_what_fits_no_record_end_it(store: BokiStore) -> None:
    async def broken(tx: Transaction) -> int:
        await bump(tx)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await store.stage(broken).ran()
    staged = store.stage(bump)
    result = await staged.ran()
    assert result == 0
    with pytest.raises(AtomicTooLarge):
        await staged.commit(lambda result: Contribution(("mine/notes",), {}, (Noted("x" * 600_000, result),)))
    assert await store.transact(bump) == 0


async def test_an_owner_that_gives_up_ends_it(store: BokiStore) -> None:
    ended = asyncio.Event()

    async def endless(tx: Transaction) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 1

    owner = asyncio.ensure_future(store.stage(endless).ran())
    await asyncio.sleep(0)
    owner.cancel()
    await asyncio.gather(owner, return_exceptions=True)
    assert ended.is_set()
    staged = store.stage(bump)
    await staged.ran()
    await staged.end()
    assert await store.transact(bump) == 0, "nothing of it is in the log"


def test_a_turn_is_kept_for_an_owner_no_longer_than_a_body_may_run() -> None:
    """An owner that neither commits nor gives up would hold up all later transactions on its objects."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with MemoryCluster() as cluster:
            settings = StoreSettings(checkpoints=False, grace_ms=5_000)
            store, other = [BokiStore((await cluster.connect()).book("shop"), settings=settings) for _ in range(2)]
            staged = store.stage(bump)
            await staged.ran()
            while not len(store._commits._turns):
                await other.object("x").inc("n")
                assert await staged.commit(noted) is None
                await staged.ran()
            began = loop.time()
            waits = asyncio.ensure_future(store.transact(bump))
            assert await store.object("y").inc("n") == 1
            await waits
            assert 4 < loop.time() - began < 6
            committed = None
            while committed is None:
                await staged.ran()
                committed = await staged.commit(noted)
            assert committed.result == await waits + 1, "it goes on without its turn"

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(play())


def test_a_turn_of_an_owner_that_commits_or_gives_up_is_watched_no_more() -> None:
    async def play() -> None:
        async with MemoryCluster() as cluster:
            store, other = [BokiStore((await cluster.connect()).book("shop")) for _ in range(2)]
            for gives_up in (False, True):
                staged = store.stage(bump)
                await staged.ran()
                while not len(store._commits._turns):
                    await other.object("x").inc("n")
                    assert await staged.commit(noted) is None
                    await staged.ran()
                assert len(store._commits._held) == 1
                if gives_up:
                    await staged.end()
                else:
                    assert await staged.commit(noted) is not None
                assert not len(store._commits._turns) and not store._commits._held

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(play())
