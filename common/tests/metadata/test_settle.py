"""Lost answers: every way in which one or two writers meet them ends in what really happened."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from boki_common.errors import BadVersion, MetadataUnavailable, MetadataUnknown, NodeExists, NoNode
from boki_common.metadata.memory import Fault
from boki_common.metadata.settle import Superseded, compare_and_set, create_settled
from boki_common.metadata.store import Versioned

LOSSES = (Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.DELAYED)


@pytest.mark.parametrize("faults", list(itertools.product(LOSSES, repeat=2)))
async def test_a_write_alone_is_applied_once(stores: Any, faults: tuple[Fault, ...]) -> None:
    store = stores[0]
    await store.create("/a", b"old")
    for fault in faults:
        store.fail_next_write(fault)
    assert await compare_and_set(store, "/a", b"mine", version=0) == 1
    store.tree.deliver_delayed()
    assert await store.get("/a") == Versioned(b"mine", 1)


@pytest.mark.parametrize("fault", LOSSES)
async def test_against_another_writer_one_wins_and_both_know(stores: Any, fault: Fault) -> None:
    mine, other = stores
    await mine.create("/a", b"old")
    mine.fail_next_write(fault)

    async def attempt(store: Any, value: bytes) -> bool:
        try:
            await compare_and_set(store, "/a", value, version=0)
        except BadVersion as error:
            refusals.append(error.definite)
            return False
        return True

    refusals: list[bool] = []
    won = list(await asyncio.gather(attempt(mine, b"mine"), attempt(other, b"other")))
    assert refusals == [True]
    mine.tree.deliver_delayed()
    value, version = await mine.get("/a")
    assert version == 1
    assert won == [value == b"mine", value == b"other"]


@pytest.mark.parametrize("fault", [Fault.NONE, *LOSSES])
async def test_a_swap_that_makes_a_node_does_both_or_neither(stores: Any, fault: Fault) -> None:
    mine, other = stores
    await mine.create("/a", b"old")
    mine.fail_next_write(fault)
    assert await compare_and_set(mine, "/a", b"mine", version=0, creating={"/new": b"1"}) == 1
    mine.tree.deliver_delayed()
    assert (await other.get("/new")).value == b"1"
    mine.fail_next_write(fault)
    with pytest.raises(NodeExists):
        await compare_and_set(mine, "/a", b"again", version=1, creating={"/new": b"2"})
    mine.tree.deliver_delayed()
    assert (await other.get("/a"), await other.get("/new")) == (Versioned(b"mine", 1), Versioned(b"1", 0))


async def test_a_write_under_way_cannot_land_after_the_verdict(stores: Any) -> None:
    mine, other = stores
    await mine.create("/a", b"old")
    mine.fail_next_write(Fault.DELAYED)
    with pytest.raises(MetadataUnknown):
        await mine.set("/a", b"mine", version=0)
    assert (await mine.get("/a")).value == b"old", "looking settles nothing: the write is still under way"
    assert await compare_and_set(other, "/a", b"other", version=0) == 1
    outcomes = mine.tree.deliver_delayed()
    assert [type(outcome) for outcome in outcomes] == [BadVersion]
    assert (await mine.get("/a")).value == b"other"


async def test_ours_replaced_by_a_later_write_is_not_called_refused(stores: Any) -> None:
    mine, other = stores
    await mine.create("/a", b"old")

    def plan(operation: str, _path: str) -> Fault:
        return Fault.ANSWER_LOST if operation == "set" and mine.tree.get("/a").version == 0 else Fault.NONE

    mine.faults = plan
    writing = asyncio.create_task(compare_and_set(mine, "/a", b"mine", version=0))
    while (await other.get("/a")).version == 0:
        await asyncio.sleep(0)
    await other.set("/a", b"next", version=1)
    with pytest.raises(Superseded) as caught:
        await writing
    assert not caught.value.definite
    assert isinstance(caught.value, BadVersion)


async def test_a_refusal_is_definite(stores: Any) -> None:
    store = stores[0]
    await store.create("/a", b"old")
    await store.set("/a", b"mine", version=0)
    with pytest.raises(BadVersion) as caught:
        await compare_and_set(store, "/a", b"mine", version=0)
    assert caught.value.definite, "equal contents do not make an old write ours"
    with pytest.raises(NoNode):
        await compare_and_set(store, "/none", b"mine", version=0)


async def test_what_was_never_sent_is_unavailable(stores: Any) -> None:
    store = stores[0]
    await store.create("/a", b"old")
    store.disconnect()
    for refused in (compare_and_set(store, "/a", b"mine", version=0), create_settled(store, "/b", b"mine")):
        with pytest.raises(MetadataUnavailable):
            await refused


async def test_an_outage_in_the_middle_is_waited_for(stores: Any) -> None:
    store = stores[0]
    await store.create("/a", b"old")
    store.fail_next_write(Fault.ANSWER_LOST)
    store.fail_next_write(Fault.UNAVAILABLE, count=2)
    assert await compare_and_set(store, "/a", b"mine", version=0) == 1


async def test_the_deadline_ends_it_as_unknown(stores: Any) -> None:
    store = stores[0]
    await store.create("/a", b"old")
    store.fail_next_write(Fault.REQUEST_LOST, count=1_000)
    with pytest.raises(MetadataUnknown, match="not settled in time"):
        await compare_and_set(store, "/a", b"mine", version=0, deadline_s=0.1)
    with pytest.raises(MetadataUnknown, match="not settled in time"):
        await create_settled(store, "/b", b"mine", deadline_s=0.1)


@pytest.mark.parametrize("faults", list(itertools.product(LOSSES, repeat=2)))
async def test_a_node_is_made_once(stores: Any, faults: tuple[Fault, ...]) -> None:
    store, other = stores
    for fault in faults:
        store.fail_next_write(fault)
    await create_settled(store, "/a", b"mine", ephemeral=True)
    store.tree.deliver_delayed()
    assert await store.get("/a") == Versioned(b"mine", 0)
    with pytest.raises(NodeExists) as caught:
        await create_settled(other, "/a", b"other")
    assert caught.value.definite


@pytest.mark.parametrize("fault", LOSSES)
async def test_of_two_makers_one_wins_and_both_know(stores: Any, fault: Fault) -> None:
    async def attempt(store: Any, value: bytes) -> bool:
        try:
            await create_settled(store, "/a", value)
        except NodeExists:
            return False
        return True

    stores[0].fail_next_write(fault)
    won = list(await asyncio.gather(attempt(stores[0], b"mine"), attempt(stores[1], b"other")))
    stores[0].tree.deliver_delayed()
    value = (await stores[0].get("/a")).value
    assert won == [value == b"mine", value == b"other"]


async def test_a_node_made_and_changed_by_others_is_unknown(stores: Any) -> None:
    mine, other = stores
    mine.faults = lambda operation, _path: (
        Fault.ANSWER_LOST if operation == "create" and not mine.tree.exists("/a") else Fault.NONE
    )
    making = asyncio.create_task(create_settled(mine, "/a", b"mine"))
    while not await other.exists("/a"):
        await asyncio.sleep(0)
    await other.set("/a", b"changed", version=0)
    with pytest.raises(MetadataUnknown, match="cannot be known"):
        await making


async def test_no_parent_is_said_at_once(stores: Any) -> None:
    with pytest.raises(NoNode):
        await create_settled(stores[0], "/a/b", b"")
