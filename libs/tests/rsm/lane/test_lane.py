"""A lane: timers, faults, machines that do not exist, classes that it does not know, full records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.msgpack import encode

from boki import Book, Gap
from boki.testing import MemoryCluster
from boki_common.errors import BokiError
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Read
from bokilib.records.contribution import Contribution
from bokilib.records.tags import PARTITIONS, rsm_partition
from bokirsm import (
    App,
    Ask,
    Event,
    Host,
    Machine,
    MachineFaulted,
    NoSuchMachine,
    Ref,
    Refused,
    Register,
    Rsm,
    State,
    Volatile,
)
from libs.tests.rsm.conftest import WORDS, NewHost, NewRsm
from libs.tests.rsm.traces import traces_of
from libs.tests.rsm.words import Best, Counter, Freq, Init, Max, Word

FAIL: dict[str, Callable[[], object]] = {}
"""Errors that handlers raise, by the text of the event, until a test mends them."""


class Note(Event):
    text: str


class Story(Ask[list[str]]):
    pass


class Go(Event):
    pass


class Wait(Event):
    seconds: float
    text: str
    every: float | None = None


class Diary(Machine[Note | Story | Go | Wait]):
    story: Register[list[str]] = Register([])
    tries: Volatile[int] = Volatile(int)
    closed = State(defer=(Note,))
    begun = State(start=True)

    @begun.on(Note)
    def note(self, e: Note) -> None:
        self.tries += 1
        self.story.append(e.text)
        if e.text in FAIL:
            FAIL[e.text]()
        if e.text == "close":
            self.jump(self.closed)
        if e.text == "halt":
            self.halt()
        if e.text == "large":
            self.send(self.me, Note("x" * 400_000))

    @begun.on(Wait)
    def wait(self, e: Wait) -> None:
        self.after(e.seconds, Note(e.text), name=e.text, every=e.every)

    @begun.on(Story)
    @closed.on(Story)
    def tell(self, e: Story) -> None:
        if not self.story:
            raise Refused("nothing happened")
        self.reply(e, [text[:9] for text in self.story])

    @closed.on(Go)
    def reopen(self, e: Go) -> None:
        self.jump(self.begun)

    @begun.on(Go)
    def stop(self, e: Go) -> None:
        for name in ("a", "b"):
            self.cancel(name)


DIARIES = App("diaries", [Diary])


def fails() -> None:
    raise ValueError("not today")


async def test_deferred_events_wait_and_come_in_order(new_host: NewHost) -> None:
    async with await new_host(DIARIES, name="h") as host:
        diary = await host.create(Diary, key="d")
        await host.send_many([(diary, Note(text)) for text in ("a", "close", "b", "c")])
        assert await host.ask(Story().to(diary)) == ["a", "close"]
        await host.send_many([(diary, Note("d")), (diary, Go()), (diary, Note("e"))])
        assert await host.ask(Story().to(diary)) == ["a", "close", "b", "c", "d", "e"]


async def test_a_refused_question_raises_at_its_asker(new_host: NewHost) -> None:
    async with await new_host(DIARIES, name="h") as host:
        diary = await host.create(Diary)
        with pytest.raises(Refused, match="nothing happened"):
            await host.ask(Story().to(diary))


async def test_a_failed_handler_is_a_fault_until_it_is_resumed(new_host: NewHost, new_rsm: NewRsm) -> None:
    rsm = await new_rsm(DIARIES)
    async with rsm, await new_host(DIARIES, name="h") as host:
        diary, other = await host.create(Diary, key="d"), await host.create(Diary, key="other")
        await host.send(diary, Note("a"))
        FAIL["b"] = fails
        asked = asyncio.create_task(rsm.ask(Story().to(diary)))
        await asked
        await host.send_many([(diary, Note("b")), (diary, Note("c"))])
        with pytest.raises(MachineFaulted, match="ValueError: not today") as faulted:
            await rsm.ask(Story().to(diary))
        assert not faulted.value.definite and faulted.value.facts["machine"] == str(diary)
        await host.send(other, Note("x"))
        assert await rsm.ask(Story().to(other)) == ["x"], "other machines continue"
        with pytest.raises(NoSuchMachine, match="to have a fault"):
            await rsm.resume(other)
        del FAIL["b"]
        await rsm.resume(diary)
        assert await rsm.ask(Story().to(diary)) == ["a", "b", "c"]


async def test_the_event_of_a_fault_is_skipped_also_by_another_host(new_host: NewHost) -> None:
    FAIL["b"] = fails
    async with await new_host(DIARIES, name="h") as host:
        diary = await host.create(Diary, key="d")
        await host.send_many([(diary, Note(text)) for text in "abbc"])
        with pytest.raises(MachineFaulted):
            await host.ask(Story().to(diary))
    async with await new_host(DIARIES, name="i") as host:
        with pytest.raises(MachineFaulted):
            await host.ask(Story().to(diary))
        await host.rsm.skip(diary)
        with pytest.raises(MachineFaulted):
            await host.ask(Story().to(diary))
        await host.rsm.skip(diary)
        assert await host.ask(Story().to(diary)) == ["a", "c"]
    del FAIL["b"]


@pytest.mark.blocking_allowed
async def test_a_handler_that_hangs_is_a_fault_and_others_go_on(new_host: NewHost) -> None:
    def hang() -> None:
        end_s = time.monotonic() + 30
        while time.monotonic() < end_s:
            pass

    FAIL["hang"] = hang
    async with await new_host(DIARIES, name="h", stuck_after_s=0.2) as host:
        diary, other = await host.create(Diary, key="d"), await host.create(Diary, key="other")
        await host.send_many([(diary, Note("hang")), (other, Note("x"))])
        with pytest.raises(MachineFaulted, match="to end within"):
            await host.ask(Story().to(diary))
        assert await host.ask(Story().to(other)) == ["x"]
    del FAIL["hang"]


@in_virtual_time
async def test_timers_fire_in_time_also_after_a_takeover() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        async with await host_of(cluster, "one") as host:
            diary = await host.create(Diary, key="d")
            await host.send_many([(diary, Wait(10, "a", every=3)), (diary, Wait(30, "b")), (diary, Note("c"))])
            assert await host.ask(Story().to(diary)) == ["c"]
        async with await host_of(cluster, "two") as host:
            told = ["c"]
            times = []
            while len(told) < 4:
                now = await host.ask(Story().to(diary))
                times += [round(loop.time() - begun_s, 1)] * (len(now) - len(told))
                told = now
                await let_pass(0.5)
            assert told == ["c", "a", "a", "a"] and times[0] == pytest.approx(10, abs=1)
            assert times[2] - times[0] == pytest.approx(6, abs=1)
            await host.send(diary, Go())
            told = await host.ask(Story().to(diary))
            for _ in range(100):
                await let_pass(0.5)
            assert await host.ask(Story().to(diary)) == told, "both were cancelled"


async def host_of(cluster: MemoryCluster, name: str) -> Host:
    return Host(DIARIES, (await cluster.connect()).book("b"), name=name, lease_s=3.0, stuck_after_s=None)


async def test_what_is_sent_to_no_machine_is_dropped_and_counted(new_host: NewHost) -> None:
    async with await new_host(DIARIES, name="h") as host:
        nowhere: Ref[Note] = Ref("diaries", 5, "nowhere")
        await host.send_many([(nowhere, Note("a")), (nowhere, Note("b"))])
        diary = await host.create(Diary, key="d")
        await host.send_many([(diary, Note("halt")), (diary, Note("later")), (diary, Note("last"))])
        await dropped(host, 4)
    async with await new_host(DIARIES, name="i") as host:
        await host.send(diary, Note("after"))
        await dropped(host, 1)


async def test_a_question_to_no_machine_says_so(new_host: NewHost, new_rsm: NewRsm) -> None:
    rsm = await new_rsm(DIARIES)
    async with rsm, await new_host(DIARIES, name="h") as host:
        nowhere: Ref[Story] = Ref("diaries", 5, "nowhere")
        with pytest.raises(
            NoSuchMachine, match="diaries/5/nowhere to answer Story, found that it was never"
        ) as missing:
            await rsm.ask(Story().to(nowhere))
        assert missing.value.definite
        diary = await rsm.create(Diary, key="d")
        await rsm.send_many([(diary, Note("halt")), (diary, Note("later"))])
        with pytest.raises(NoSuchMachine, match=f"{diary} to answer"):
            await rsm.ask(Story().to(diary))
        assert host.lane.dropped == 3
    async with await new_host(DIARIES, name="i") as host:
        with pytest.raises(NoSuchMachine, match=f"{diary} to answer"):
            await host.ask(Story().to(diary))


async def dropped(host: Host, count: int) -> None:
    while host.lane.dropped < count:
        await asyncio.sleep(0)
    await host.lane.settled()
    assert host.lane.dropped == count


async def test_a_machine_of_a_class_that_a_host_does_not_know_waits(new_host: NewHost) -> None:
    async with await new_host(WORDS, name="h") as host:
        top = await host.create(Max, key="max")
        await host.send(top, Freq("a", 3))
    async with await new_host(App("words", [Counter]), name="i") as host:
        await host.send(top, Freq("b", 2))
        counter = await host.create(Counter, Init(top), key="c")
        assert await host.ask(Word("x").to(counter)) == 1
    async with await new_host(WORDS, name="j") as host:
        assert await host.ask(Best().to(top)) == "a 3"
        await host.send(top, Freq("c", 9))
        assert await host.ask(Best().to(top)) == "c 9"


async def test_what_does_not_fit_one_record_is_several(new_host: NewHost) -> None:
    async with await new_host(DIARIES, name="h") as host:
        diaries = [await host.create(Diary, key=f"d{number}") for number in range(6)]
        await host.send_many([(diary, Note("large")) for diary in diaries])
        for diary in diaries:
            assert await host.ask(Story().to(diary)) == ["large", "x" * 9]


async def test_volatile_fields_begin_again_after_a_failure(new_host: NewHost) -> None:
    calls = []

    def once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")

    FAIL["once"] = once
    async with await new_host(DIARIES, name="h") as host:
        diary = await host.create(Diary, key="d")
        await host.send_many([(diary, Note("a")), (diary, Note("once"))])
        assert await host.ask(Story().to(diary)) == ["a", "once"], "the second attempt succeeded"
        assert host.lane._machines[str(diary)].volatile == {"tries": 1}
    del FAIL["once"]


async def test_a_client_sees_what_hosts_do(new_host: NewHost, new_rsm: NewRsm) -> None:
    rsm: Rsm = await new_rsm(DIARIES)
    async with rsm, await new_host(DIARIES, name="h"):
        diary = await rsm.create(Diary, Note("first"))
        assert await rsm.ask(Story().to(diary)) == ["first"]


async def test_events_sent_before_their_machine_joined_the_lane_come_first(new_host: NewHost) -> None:
    """A partition joins while a record of its former owner, with events to this lane, is not delivered here yet."""
    diaries = DIARIES
    async with (
        await new_host(diaries, name="h", lease_s=60.0) as host,
        await new_host(diaries, name="i", lease_s=60.0) as other,
    ):
        diary = await host.create(Diary, key="d")
        warm = await host.create(Diary, Note("x"), key="e")
        assert await host.ask(Story().to(warm)) == ["x"]
        lane = host.lane
        held: list[Read | Gap | BokiError] = []
        saw = lane._saw
        subscription = lane._follower._by_tag[rsm_partition("diaries", diary.partition)].subscriptions._by_tag
        receiver = subscription[rsm_partition("diaries", diary.partition)]
        receiver.deliver = held.append  # type: ignore[misc]
        await host.send(diary, Note("first"))
        free = next(one for one in host.partitions if one != diary.partition)
        claim = host._owner.mine[free]
        async with lane._turn:
            lane._leave([free], claim)
        taking = asyncio.create_task(lane.take({free: claim}))
        await asyncio.wait([taking], timeout=0.1)
        assert not taking.done() and free not in host.partitions
        receiver.deliver = partial(saw, diary.partition)  # type: ignore[misc]
        for item in held:
            saw(diary.partition, item)
        await taking
        assert free in host.partitions and not other.partitions
        assert await host.ask(Story().to(diary)) == ["first"]


async def test_a_release_whose_caller_is_cancelled_loses_no_record(new_host: NewHost) -> None:
    async with await new_host(DIARIES, name="h", lease_s=60.0) as host:
        diary = await host.create(Diary, key="d")
        warm = await host.create(Diary, Note("x"), key="e")
        assert await host.ask(Story().to(warm)) == ["x"]
        begun: list[asyncio.Event] = []
        append = host._log.append

        async def held(one: Contribution, *, seen: int = 0, settle: bool = False, **options: Any) -> int:
            if settle:
                begun.append(asyncio.Event())
                await begun[-1].wait()
            return await append(one, seen=seen, settle=settle, **options)

        host._log.append = held  # type: ignore[method-assign]
        await host.send(diary, Note("a"))
        await until(lambda: len(begun) == 1)
        await host.send(diary, Note("b"))
        await until(lambda: bool(host.lane._records[0]))
        giving = asyncio.create_task(host.lane.give([diary.partition], release=Contribution()))
        await asyncio.sleep(0)
        begun[0].set()
        await until(lambda: len(begun) == 2)
        giving.cancel()
        host._log.append = append  # type: ignore[method-assign]
        begun[1].set()
        await asyncio.gather(giving, return_exceptions=True)
        assert giving.cancelled()
        await host._round()
        assert await host.ask(Story().to(diary)) == ["a", "b"]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)


async def test_a_partition_that_was_lost_and_claimed_again_is_read_again(new_host: NewHost) -> None:
    """What was handled under the former claim is not in the log: another host may have handled it."""
    async with await new_host(DIARIES, name="h", lease_s=60.0) as host:
        diary = await host.create(Diary, Note("a"), key="d")
        assert await host.ask(Story().to(diary)) == ["a"]
        lane = host.lane
        async with lane._turn:
            await host.send(diary, Note("b"))
            await until(lambda: bool(lane._records[0]))
            assert await host._owner.claim([diary.partition])
            taking = asyncio.create_task(lane.take(dict(host._owner.mine)))
            assert await host.rsm.log.append(Contribution()) > 0
        await taking
        assert await host.ask(Story().to(diary)) == ["a", "b"]
    book = host._log.book
    assert isinstance(book, Book)
    traces = await traces_of(book)
    assert traces[str(diary)] == ["Note", "Story", "Note", "Story"]


async def test_a_partition_that_cannot_be_read_holds_up_no_other(
    new_host: NewHost, new_rsm: NewRsm, capsys: pytest.CaptureFixture[str]
) -> None:
    rsm = await new_rsm(DIARIES)
    diaries = [await rsm.create(Diary, key=f"d{number}") for number in range(8)]
    broken = diaries[0].partition
    damaged = encode([1, "by", 0, [["rsm.input", "diaries", 5]]])
    _ = await rsm.log.book.submit(damaged, tags=[rsm_partition("diaries", broken)])
    async with rsm, await new_host(DIARIES, name="h") as host:
        assert len(host.partitions) == PARTITIONS - 1 and broken not in host.partitions
        for diary in diaries:
            if diary.partition != broken:
                await host.send(diary, Note("x"))
                assert await host.ask(Story().to(diary)) == ["x"]
        await host._round()
    assert capsys.readouterr().err.count("partition unreadable") == 1
