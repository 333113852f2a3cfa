"""Turns of carriers, records that are left to other libraries, and trims of the carriers' own records."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Conflict, InvalidArgument
from boki_common.logs import configured
from boki_common.metrics import Metrics
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Carrier, Contribution, Event, Fence, Fenced, Log, Members
from bokilib.append.log import Read
from bokilib.errors import UnknownEvent
from bokilib.records.conflict_rules import Claim, Expected
from bokilib.records.tags import member, rewriter
from bokilib.retention.carrier import EVERY_S
from bokilib.retention.checkpoint_rules import REWRITE_MS


class Wall:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


class Owned(Event, tag="queue.push", frozen=True):
    """An event of a library with owners."""

    id: str


class Noted(Event, tag="toy.note", frozen=True):
    """An event of a library without owners."""

    id: str


class Toy:
    """A library that notes its records; its `carry` appends one record under the fence."""

    def __init__(self, log: Log, library: str = "toy") -> None:
        self.library = library
        self.log = log
        self.noted: list[int] = []
        self.tended = 0

    def collect(self, read: Read) -> int:
        self.noted.append(read.record.seqnum)
        return len(self.noted)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        if self.noted:
            await self.log.append(Contribution(("toy",), fence, (Noted("carried"),)), settle=True)
        carried, self.noted = len(self.noted), []
        return carried, 0

    async def tend(self) -> None:
        self.tended += 1


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def logs(wall: Wall) -> AsyncIterator[list[Log]]:
    async with MemoryCluster(clock=wall) as cluster:
        yield [Log((await cluster.connect()).book("b")) for _ in range(2)]


async def test_old_records_are_handed_to_who_carries_them_and_those_of_owners_counted(
    logs: list[Log], wall: Wall
) -> None:
    log = logs[0]
    for event in (Noted("a"), Owned("b"), Owned("c")):
        await log.append(Contribution((event.id,), {}, (event,)))
    await log.append(Contribution(("both",), {}, (Noted("d"), Owned("e"))))
    wall.ms += REWRITE_MS
    young = await log.append(Contribution(("young",), {}, (Noted("f"),)))
    metrics, toy = Metrics(), Toy(log)
    carrier = Carrier(log, [toy], who="a", metrics=metrics)
    done = await carrier.round()
    assert (done.read, done.carried, done.left) == (4, 2, {"queue": 3})
    assert toy.tended == 1 and young not in toy.noted
    page = metrics.render().decode()
    assert 'boki_carry_left_records{library="queue"} 3.0' in page
    assert 'boki_carry_states_total{library="toy"} 2.0' in page


async def test_old_claims_of_other_fences_are_counted_and_stop_nobody(logs: list[Log], wall: Wall) -> None:
    log = logs[0]
    await Fence(log, "queue/own/q/0/g", "a shard", who="b").take(None)
    await log.append(Contribution(("a",), {}, (Noted("a"),)))
    wall.ms += REWRITE_MS
    done = await Carrier(log, [Toy(log)], who="a").round()
    assert (done.read, done.carried, done.left) == (2, 1, {"lib": 1})


async def test_nothing_is_carried_under_a_fence_that_is_over(logs: list[Log], wall: Wall) -> None:
    one, other = logs
    await one.append(Contribution(("a",), {}, (Noted("a"),)))
    wall.ms += REWRITE_MS

    class Slow(Toy):
        async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
            await Carrier(other, [Toy(other)], who="faster").round()
            return await super().carry(now_ms, fence, carry_ms=carry_ms)

    before = one.appends
    with pytest.raises(Fenced) as caught:
        await Carrier(one, [Slow(one)], who="slow").round()
    assert isinstance(caught.value.__cause__, Conflict)
    assert one.appends - before == 2, "the claim, and what was refused"


async def test_of_claims_the_newest_is_kept_and_of_the_dead_no_heartbeat(logs: list[Log], wall: Wall) -> None:
    log = logs[0]
    await Members(log, "workers", "host-3").beat()
    carrier = Carrier(log, [Toy(log)], who="a")
    claims = []
    for _ in range(3):
        wall.ms += REWRITE_MS
        claims.append((await carrier.round()).claims["toy"])
    live = [item async for item in log.book.read() if isinstance(item, boki.Record)]
    assert [item.seqnum for item in live] == claims[-1:]
    assert await log.book.read_prev(member("workers")) is None


async def test_a_claim_is_found_though_its_holder_trims_those_before(logs: list[Log]) -> None:
    """A process that loses or looks while claims are appended and trimmed reads the newest one, not a gap."""
    one, other = logs
    slow, fast = (
        Fence(one, rewriter("toy"), "the turn", who="slow"),
        Fence(other, rewriter("toy"), "the turn", who="fast"),
    )
    last = await slow.current()
    claims = []
    for _ in range(3):
        claims.append(await fast.take(await fast.current()))
        await other.book.trim([(rewriter("toy"), claims[-1])])
    with pytest.raises(Fenced, match="claimed by fast"):
        await slow.take(last)
    found = await slow.current()
    assert found is not None and found.seqnum == claims[-1]


@in_virtual_time
async def test_who_carries_few_libraries_keeps_nobody_from_carrying_the_rest() -> None:
    """The first carrier has its turn before the second one starts, and repeats it until it stops."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        one, other = [Log((await cluster.connect()).book("b")) for _ in range(2)]
        few, many = [Toy(one, "toy")], [Toy(other, "toy"), Toy(other, "queue")]
        async with Carrier(one, few, who="few"):
            await let_pass(EVERY_S / 2)
            async with Carrier(other, many, who="many"):
                await let_pass(9.8 * EVERY_S)
                assert [toy.tended for toy in (*few, *many)] == [11, 0, 10]
                few[0].tended = 0
            await let_pass(2.8 * EVERY_S)
        async with Carrier(other, many, who="many"):
            await let_pass(2.8 * EVERY_S)
        assert [toy.tended for toy in (*few, *many)] == [3, 2, 12], "who comes waits whether somebody is there"


class Lives(NamedTuple):
    """A process with a carrier: its first round, its number of rounds, and its libraries."""

    begins: float
    lasts: float
    libraries: frozenset[str]

    @property
    def ends(self) -> float:
        return self.begins + self.lasts


@given(
    st.lists(
        st.builds(
            Lives,
            st.floats(0, 4),
            st.floats(0.1, 8),
            st.frozensets(st.sampled_from(["a", "b", "c"]), min_size=1),
        ),
        min_size=1,
        max_size=5,
    )
)
@example(
    [
        Lives(0, 1, frozenset("a")),
        Lives(0, 2, frozenset("ab")),
        Lives(0, 3, frozenset("abc")),
        Lives(0, 3, frozenset("a")),
    ]
)
@settings(max_examples=50)
def test_each_library_is_carried_within_two_rounds_whoever_comes_and_goes(lives: list[Lives]) -> None:
    carried = in_virtual_time(carried_by)(lives)
    for one in lives:
        for library in one.libraries:
            times = sorted(time for time in carried[library] if one.begins <= time <= one.ends)
            steps = pairwise([one.begins, *times, one.ends])
            assert all(after - before <= 2.05 for before, after in steps), (library, one, times)


async def carried_by(lives: list[Lives]) -> dict[str, list[float]]:
    """Return the rounds in which each library was rewritten."""
    carried: dict[str, list[float]] = {library: [] for library in "abc"}
    now = asyncio.get_running_loop().time
    began = now()

    class Timed(Toy):
        async def tend(self) -> None:
            carried[self.library].append((now() - began) / EVERY_S)

    async def live(log: Log, one: Lives) -> None:
        await let_pass(one.begins * EVERY_S)
        async with Carrier(log, [Timed(log, library) for library in sorted(one.libraries)], who="p"):
            await let_pass(one.lasts * EVERY_S)

    async with MemoryCluster(clock=LoopClock()) as cluster:
        logs = [Log((await cluster.connect()).book("b")) for _ in lives]
        await asyncio.gather(*(live(log, one) for log, one in zip(logs, lives, strict=True)))
    return carried


async def test_a_turn_that_is_lost_ends_no_other_one(logs: list[Log], wall: Wall) -> None:
    one, other = logs
    await one.append(Contribution(("a",), {}, (Noted("a"), Owned("b"))))
    wall.ms += REWRITE_MS

    class Slow(Toy):
        async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
            await Carrier(other, [Toy(other)], who="faster").round()
            return await super().carry(now_ms, fence, carry_ms=carry_ms)

    slow, queue = Slow(one), Toy(one, "queue")
    done = await Carrier(one, [slow, queue], who="both").round()
    assert (done.carried, slow.tended, queue.tended) == (1, 0, 1)


async def test_what_a_library_cannot_read_or_carry_keeps_its_term_and_no_others(logs: list[Log], wall: Wall) -> None:
    log = logs[0]
    await log.append(Contribution(("a",), {}, (Noted("a"),)))
    await log.append(Contribution(("b",), {}, (Owned("b"),)))
    wall.ms += REWRITE_MS

    class Old(Toy):
        """An event of an older version."""

        def collect(self, read: Read) -> int:
            raise UnknownEvent("upgrade it")

        async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
            raise UnknownEvent("upgrade it")

    metrics = Metrics()
    done = await Carrier(log, [Old(log), Toy(log, "queue")], who="a", metrics=metrics).round()
    assert (done.carried, done.left) == (1, {"unreadable": 1})
    assert 'boki_carry_unreadable_total{library="toy"} 1.0' in metrics.render().decode()


async def test_claims_of_a_library_that_is_carried_no_more_keep_no_term(logs: list[Log], wall: Wall) -> None:
    log = logs[0]
    claims = (await Carrier(log, [Toy(log), Toy(log, "queue")], who="both").round()).claims
    once = await Fence(log, "lib/carry", "the carrier", who="of all libraries together").take(None)
    wall.ms += REWRITE_MS
    done = await Carrier(log, [Toy(log)], who="a").round()
    live = [item.seqnum async for item in log.book.read() if isinstance(item, boki.Record)]
    assert live == [done.claims["toy"]] and not {once, *claims.values()} & set(live)
    assert (await Carrier(log, [Toy(log, "queue")], who="again").round()).claims["queue"] > live[0]


def test_a_carrier_of_nothing_is_refused(logs: list[Log]) -> None:
    with pytest.raises(InvalidArgument, match="at least one library"):
        Carrier(logs[0], [], who="a")


async def test_a_carrier_goes_on_after_a_defect_and_logs_it(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log((await cluster.connect()).book("shop"))
    carrier = Carrier(log, [Toy(log)], who="a", every_s=0.0)
    looks = 0
    again = asyncio.Event()

    async def free() -> dict[str, Claim | None]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RuntimeError("defect")
        again.set()
        return {}

    monkeypatch.setattr(carrier, "_free", free)
    stream = io.StringIO()
    with configured(stream=stream):
        async with carrier, asyncio.timeout(30):
            await again.wait()
    assert "carrier round ended by a defect" in stream.getvalue()
