"""Outputs under faults: crashes at every operation, a second host, records that come late. Each output is answered once, and none is lost.

`docs/acceptance.md` names the rule of fault 11, which `itests/mutations` takes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

import boki
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.follow.members import Members
from bokilib.ports import BookPort
from bokilib.records.tags import partition_of
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere, while_alive
from bokirsm import Host, Ref, Rsm
from bokirsm.lane import lane
from bokirsm.model.events import PICKER, Commit, Done, MessageId, outputs_of
from libs.tests.rsm.shop import SHOP, Mails, Order, Place, Status
from libs.tests.rsm.test_faults import surely, without_lease
from libs.tests.rsm.test_host import kill
from libs.tests.rsm.traces import ARCHIVE, archive_trims, records_of, traces_of
from libs.tests.rsm.two_hosts import Held, hosts, of, started_on, take_over
from libs.tests.rsm.upkeep import checkpoint

TEXTS = "abc"
WORLD = Mails()
"""The world outside of all processes of a run."""


@pytest.fixture(autouse=True)
def trims(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what hosts trim, for `traces_of`."""
    archive_trims(monkeypatch)
    yield
    ARCHIVE.clear()


async def fresh(_: boki.Book) -> None:
    """Forget the world of the run before, and what that trimmed."""
    WORLD.got.clear()
    ARCHIVE.clear()


async def ship(book: BookPort, who: str, lease_s: float) -> None:
    """Place orders with two machines, and wait until all mails are answered."""
    async with Host(SHOP, book, name=who, lease_s=lease_s, stuck_after_s=None, plugins=[WORLD]) as host:
        order = await surely(partial(host.create, Order, key="o"))
        other = await surely(partial(host.create, Order, key="p", near=order))
        for number, text in enumerate(TEXTS):
            to = other if text == "b" else order
            await surely(partial(host.send, to, Place(text), dedup_id=f"place-{number}"))
        for to, expected in ((order, ["a", "c"]), (other, ["b"])):
            while await surely(partial(host.ask, Status().to(to), timeout_s=3_600)) != expected:
                await let_pass(0.02)


async def program(book: BookPort) -> None:
    await while_alive(book, ship(book, "host", 1.0))


async def another(book: BookPort) -> None:
    """Take the other host for dead soon, though it only waits."""
    await while_alive(book, ship(book, "other", 0.05))


async def check(book: boki.Book) -> None:
    await check_outputs(book)
    traces = await traces_of(book)
    assert {name[-1]: events.count("Sent") for name, events in traces.items()} == {"o": 2, "p": 1}


async def check_outputs(book: boki.Book) -> None:
    """Assert that each output is done once, and was delivered, in the order of the log: all are of one partition."""
    emitted: dict[MessageId, str] = {}
    done: list[MessageId] = []
    async for seqnum, envelope in records_of(book):
        events = PICKER.of(seqnum, envelope)
        for number, _, output in outputs_of(events):
            emitted[MessageId(seqnum, number)] = msgspec.msgpack.decode(output.body)["text"]
        done += [id for event in events if isinstance(event, Done) for id in event.outputs]
    assert sorted(done) == sorted(emitted) and len(set(done)) == len(done)
    assert sorted(emitted.values()) == list(TEXTS)
    assert list(dict.fromkeys(WORLD.got)) == [(str(id), text) for id, text in sorted(emitted.items())]


@in_virtual_time
async def test_crashes_at_every_operation_lose_no_output_and_answer_none_twice() -> None:
    explored = await crash_everywhere(program, program, check, clock=LoopClock(), before=fresh)
    assert explored.operations > 15 and explored.runs > 30


@in_virtual_time
async def test_lost_answers_and_late_appends_lose_no_output_and_answer_none_twice() -> None:
    await crash_everywhere(program, program, check, kinds=UNKNOWNS, clock=LoopClock(), before=fresh)
    await crash_everywhere(program, another, check, kinds=UNANSWERED, clock=LoopClock(), before=fresh)


@in_virtual_time
async def test_crashes_between_checkpoints_and_trims_lose_no_output() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane, "RECORDS_BETWEEN", 2)
        await crash_everywhere(program, program, check, clock=LoopClock(), before=fresh)


@in_virtual_time
async def test_a_second_host_at_any_operation_answers_no_output_twice() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Members, "_heartbeat", without_lease)
        explored = await start_anywhere(program, another, check, clock=LoopClock(), before=fresh)
    assert explored.runs > 15


async def placed(book: boki.Book) -> None:
    """Place an order, as a process that stays."""
    await fresh(book)
    rsm = Rsm(SHOP, book)
    order = await rsm.create(Order, key="o")
    await rsm.send(order, Place("a"))


async def answered(book: BookPort) -> None:
    """Run a host until the mail is answered."""

    async def run() -> None:
        async with Host(SHOP, book, name="h", lease_s=1.0, stuck_after_s=None, plugins=[WORLD]) as host:
            order = Ref[Status]("shop", partition_of("o"), "o")
            while await status(host, order) != ["a"]:
                await let_pass(0.02)

    await while_alive(book, run())


async def answered_once(book: boki.Book) -> None:
    (events,) = (await traces_of(book)).values()
    assert events.count("Sent") == 1 and len(set(WORLD.got)) == 1


@in_virtual_time
async def test_an_output_is_answered_once_wherever_its_host_dies() -> None:
    explored = await crash_everywhere(answered, answered, answered_once, clock=LoopClock(), before=placed)
    assert explored.operations > 8 and explored.runs > 16


async def status(host: Host | Rsm, order: Ref[Status]) -> list[str]:
    return await host.ask(Status().to(order), timeout_s=20.0)


async def until(host: Host | Rsm, order: Ref[Status], expected: list[str]) -> None:
    while await status(host, order) != expected:
        await let_pass(0.5)


@in_virtual_time
async def test_a_delivery_that_comes_late_is_answered_by_the_next_owner_alone() -> None:
    """The record with the answer is on its way while the partition moves; the next owner delivers the output again."""
    mails = [Mails(), Mails()]
    async with hosts(SHOP, 2, plugins=mails) as (cluster, (one, two)):
        order = await one.create(Order, key="o")
        held = Held(one._log, of(Done))
        await one.send(order, Place("a"))
        await held.waiting.wait()
        await take_over(two, order.partition)
        await until(two, order, ["a"])
        held.go.set()
        await let_pass(1.0)
        assert await status(two, order) == ["a"] and one.failed is None
        assert [one.got for one in mails] == [mails[0].got] * 2, "with one id"
        third = await started_on(cluster, SHOP, "h2", plugins=[Mails()])
        await take_over(third, order.partition)
        assert await status(third, order) == ["a"], "nothing of the late record is in the log"
        await third.__aexit__(None, None, None)


@in_virtual_time
async def test_an_output_whose_record_is_lost_is_not_delivered() -> None:
    """The next owner's commit comes while the record of the former one, which is void, has no answer yet."""
    mails = [Mails(), Mails()]
    async with hosts(SHOP, 2, plugins=mails) as (_, (one, two)):
        order = await one.create(Order, key="o")
        assert await status(one, order) == []
        held = Held(one._log, of(Commit))
        await one.send(order, Place("a"))
        await held.waiting.wait()
        await take_over(two, order.partition)
        await until(two, order, ["a"])
        await let_pass(1.0)
        assert mails[0].calls == [], "it is not known to be in the log, and never will be"
        held.go.set()
        await let_pass(1.0)
        assert mails[0].calls == [] and len(mails[1].calls) == 1 and one.failed is None


@in_virtual_time
async def test_outputs_below_a_checkpoint_and_those_of_a_dead_host_are_delivered() -> None:
    """The plugin fails while the outputs are covered by a checkpoint and trimmed; so it does on the next host, at first."""
    mails = Mails()
    mails.broken["a"] = OSError("no network")
    async with hosts(SHOP, 1, plugins=[mails]) as (cluster, (one,)):
        order = await one.create(Order, key="o")
        await one.send(order, Place("a"))
        await one.send_many([(order, Place(text)) for text in "bc"])
        for _ in range(30):
            assert await status(one, order) == []
        await let_pass(10.0)
        await checkpoint(one, order.partition)
        state = one.lane._states[order.partition]
        assert len(state.outputs.all) == 3 and state.covers > max(id.seqnum for id, _ in state.outputs.all)
        failure = state.outputs.failures_of(str(order))["mails"]
        assert failure.error == "OSError: no network" and failure.attempts >= 3
        await kill(one)
        two = await started_on(cluster, SHOP, "h0", plugins=[mails])
        restored = two.lane._states[order.partition].outputs
        assert restored.all == state.outputs.all and restored.failures == state.outputs.failures
        assert restored.size == state.outputs.size and restored.size_of == state.outputs.size_of
        mails.broken.clear()
        await until(two, order, ["a", "b", "c"])
        assert not restored.all and not restored.failures and not restored.size and not restored.size_of
        await two.__aexit__(None, None, None)


@in_virtual_time
async def test_calls_that_run_may_end_before_their_partition_is_released() -> None:
    """A host that leaves while a delivery runs waits a moment, so that no other host repeats it."""
    mails = Mails()
    mails.delay_s = 0.5
    async with hosts(SHOP, 1, plugins=[mails]) as (cluster, (one,)):
        order = await one.create(Order, key="o")
        await one.send_many([(order, Place(text)) for text in "abcdef"])
        while not mails.calls:
            await let_pass(0.01)
        await one.__aexit__(None, None, None)
        assert mails.texts == list("abcd"), "no call began meanwhile"
        two = await started_on(cluster, SHOP, "h1", plugins=[mails])
        await until(two, order, list("abcdef"))
        assert mails.texts == list("abcdef")
        await asyncio.wait_for(two.__aexit__(None, None, None), 10)
