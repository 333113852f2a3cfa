"""The processor time of a lane: by events, not by partitions, and in pieces between which other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokilib.records import tags
from bokirsm import App, Ask, Event, Machine, Ref, Register, State
from bokirsm.lane import lane
from bokirsm.lane.lane import Lane
from bokirsm.model import partition_state
from bokirsm.model.events import Commit, Inputs, Message
from bokirsm.model.partition_state import Fresh, PartitionState, shares_of
from libs.tests.rsm.conftest import NewHost, NewRsm
from libs.tests.rsm.upkeep import checkpoint


class Make(Ask[int]):
    count: int
    at: int | None = None


class Ring(Event):
    pass


class Blank(Machine[Ring]):
    run = State(start=True)

    @run.on(Ring)
    def ring(self, e: Ring) -> None: ...


class Maker(Machine[Make]):
    run = State(start=True)

    @run.on(Make)
    def make(self, e: Make) -> None:
        near: Ref[Any] | None = None if e.at is None else Ref("makers", e.at, "near")
        for _ in range(e.count):
            self.create(Blank, near=near)
        self.reply(e, e.count)


class Rings(Ask[int]):
    pass


class Bell(Machine[Ring | Rings]):
    rings: Register[int] = Register(0)
    run = State(start=True)

    @run.entry
    def begin(self) -> None:
        for number in range(100):
            self.after(0, Ring(), name=f"t{number}")

    @run.on(Ring)
    def ring(self, e: Ring) -> None:
        self.rings += 1

    @run.on(Rings)
    def count(self, e: Rings) -> None:
        self.reply(e, self.rings)


MAKERS = App("makers", [Maker, Blank])


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The events that records brought to partitions, each as often as it was looked at."""
    found: list[object] = []
    weight = partition_state.weight_of

    def noted(event: partition_state.Decided) -> int:
        found.append(event)
        return weight(event)

    monkeypatch.setattr(partition_state, "weight_of", noted)
    return found


async def test_a_record_of_many_partitions_costs_what_its_events_cost(
    new_host: NewHost, new_rsm: NewRsm, weighed: list[object]
) -> None:
    async with await new_host(MAKERS, name="h") as host, await new_rsm(MAKERS) as rsm:
        maker = await rsm.create(Maker, key="m")
        assert await rsm.ask(Make(300).to(maker)) == 300
        await host.lane.settled()
        assert len({one.ref.partition for one in host.lane._machines.values()}) == tags.PARTITIONS
    assert 302 <= len(weighed) <= 310, "each commit once: no partition looks at those of others"


async def test_a_partition_that_is_loaded_with_others_costs_what_its_events_cost(
    new_host: NewHost, new_rsm: NewRsm, cluster: MemoryCluster, weighed: list[object]
) -> None:
    async with await new_host(MAKERS, name="h") as host, await new_rsm(MAKERS) as rsm:
        assert await rsm.ask(Make(300).to(await rsm.create(Maker, key="m"))) == 300
        await host.lane.settled()
    weighed.clear()
    async with await new_host(MAKERS, name="i") as host:
        assert len(host.lane.partitions) == tags.PARTITIONS
        assert len(weighed) <= 310


def test_partitions_share_the_bytes_of_a_record() -> None:
    large = Commit("g/1/m", 1, registers={"text": b"x" * 10_000})
    shares = shares_of([large, Commit("g/2/m", 1), Inputs("g", (Message("g/3/m", "e"), Message("other", "e")))], 11_000)
    sizes = {place: share.size for place, share in shares.items()}
    assert sizes["g", 1] > 10_000 and sizes["g", 2] < 200 and sizes["g", 3] < 200
    assert 11_000 - len(sizes) <= sum(sizes.values()) <= 11_000
    states = [PartitionState("g", one) for one in (1, 2)]
    for state in states:
        state.apply_shares(7, 70, shares)
    assert [one.fresh for one in states] == [Fresh(1, sizes["g", 1], 11_000), Fresh(1, sizes["g", 2], 11_000)]


async def test_large_records_of_others_bring_no_checkpoint_before_they_are_many(
    new_host: NewHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "BYTES_BETWEEN", 4_096)
    monkeypatch.setattr(lane, "WHOLE_BYTES_BETWEEN", 100_000)
    async with await new_host(MAKERS, name="h") as host:
        shares = shares_of(
            [Commit("makers/1/m", 1, registers={"text": b"x" * 30_000}), Commit("makers/2/m", 1)], 30_100
        )
        state = host.lane._states[2]
        due = []
        for seqnum in range(1, 5):
            state.apply_shares(seqnum, 10, shares)
            due.append(host.lane._is_due(2))
        assert due == [False, False, False, True], "its next owner reads all of these records"
        state.fresh = Fresh()
        state.touched.clear()


@pytest.mark.parametrize("makers", [1, 16])
async def test_handlers_that_create_many_machines_leave_turns_to_others(
    new_host: NewHost, monkeypatch: pytest.MonkeyPatch, makers: int
) -> None:
    created: list[int] = []
    handle_some, add = Lane._handle_some, Lane._add

    def some(self: Lane) -> None:
        created.append(0)
        handle_some(self)

    def added(self: Lane, *args: Any) -> Any:
        sent = add(self, *args)
        created[-1] += len(sent)
        return sent

    monkeypatch.setattr(Lane, "_handle_some", some)
    monkeypatch.setattr(Lane, "_add", added)
    async with await new_host(MAKERS, name="h") as host:
        refs = [await host.create(Maker, key=f"m{number}") for number in range(makers)]
        asks = [host.ask(Make(500).to(ref)) for _ in range(16 // makers) for ref in refs]
        assert await asyncio.gather(*asks) == [500] * 16
    assert sum(created) == 8_000 and max(created) <= 500 + lane.SLICE * lane.SENDS


async def turns_during(work: Callable[[], Awaitable[None]]) -> int:
    """Return the number of turns that another task gets while some work is done."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await work()
    counting.cancel()
    return turns


async def test_snapshots_of_many_machines_leave_turns_to_others(
    new_host: NewHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    shots = Lane._shots

    async def counted(self: Lane, partitions: Any) -> Any:
        found: list[Any] = []

        async def take() -> None:
            found.append(await shots(self, partitions))

        turns.append(await turns_during(take))
        return found[0]

    monkeypatch.setattr(Lane, "_shots", counted)
    async with await new_host(MAKERS, name="h") as host:
        maker = await host.create(Maker, key="m")
        assert await host.ask(Make(2_000, at=9).to(maker)) == 2_000
        await host.lane.settled()
        await checkpoint(host, 9)
        assert turns and max(turns) >= 2_000 // lane.SLICE
        assert host.lane._states[9].head and not host.lane._states[9].touched


async def test_checkpoints_of_many_machines_are_made_by_turns(
    new_host: NewHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "BATCH", 40)
    counts: list[int] = []
    shots = Lane._shots

    async def counted(self: Lane, partitions: Any) -> Any:
        found = await shots(self, partitions)
        counts.append(len(found.machines))
        return found

    monkeypatch.setattr(Lane, "_shots", counted)
    async with await new_host(MAKERS, name="h") as host:
        assert await host.ask(Make(640).to(await host.create(Maker, key="m"))) == 640
        await host.lane.settled()
        for state in host.lane._states.values():
            state.fresh = Fresh(1_000)
        await checkpoint(host, 9)
        assert sum(counts) == 641 and len(counts) > 10
        assert max(counts) <= 40
        assert not any(state.touched for state in host.lane._states.values())


async def test_timers_that_are_due_at_once_leave_turns_to_others(
    new_host: NewHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "RINGS", 10)
    rung: list[int] = []
    ring = Lane._ring

    def noted(self: Lane) -> None:
        before = len(self._timers)
        ring(self)
        rung.append(before - len(self._timers))

    monkeypatch.setattr(Lane, "_ring", noted)
    async with await new_host(App("bells", [Bell]), name="h") as host:
        bell = await host.create(Bell, key="b")
        while await host.ask(Rings().to(bell)) < 100:
            pass
    assert sum(rung) == 100 and max(rung) == 10
