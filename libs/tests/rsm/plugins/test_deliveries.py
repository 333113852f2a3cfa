"""Plugins that are slow, hang, raise and exit: nobody else waits, order stays, and people see what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from boki_common.errors import InvalidArgument
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import in_virtual_time
from bokirsm import Answers, App, Delivery, Event, Host, Machine, Plugin, Ref, State
from bokirsm.lane import lane
from bokirsm.plugins import deliveries
from libs.tests.rsm.shop import SHOP, Mail, Mails, Order, Place, Status
from libs.tests.rsm.test_output_faults import status, until
from libs.tests.rsm.two_hosts import hosts, started_on


async def orders(host: Host, count: int) -> list[Ref[Any]]:
    """Create machines in one partition."""
    first = await host.create(Order, key="o-0")
    return [first, *[await host.create(Order, key=f"o-{number}", near=first) for number in range(1, count)]]


ERRORS = [
    OSError("no"),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    BaseException("x"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@in_virtual_time
async def test_whatever_a_plugin_raises_other_machines_go_on(error: BaseException) -> None:
    mails = Mails()
    mails.broken["bad"] = error
    async with hosts(SHOP, 1, plugins=[mails]) as (_, (host,)):
        bad, good = await orders(host, 2)
        await host.send_many([(bad, Place("bad")), (bad, Place("next")), (good, Place("a")), (good, Place("b"))])
        await until(host, good, ["a", "b"])
        await let_pass(60.0)
        assert await status(host, bad) == [] and "next" not in mails.texts, "its own outputs stay in order"
        failure = host.lane._states[bad.partition].outputs.failures_of(str(bad))["mails"]
        assert failure.error.startswith(type(error).__name__) and failure.attempts == 6
        tries = mails.calls.count(["bad"])
        assert 6 <= tries <= 12, "after pauses that become longer"
        mails.broken.clear()
        await until(host, bad, ["bad", "next"])
        assert mails.calls.count(["bad"]) == tries + 1
        assert not host.lane._states[bad.partition].outputs.failures


@in_virtual_time
async def test_a_delivery_that_hangs_is_cancelled_and_other_machines_go_on() -> None:
    mails = Mails()
    mails.hangs.add("bad")
    async with hosts(SHOP, 1, plugins=[mails]) as (_, (host,)):
        bad, good = await orders(host, 2)
        await host.send_many([(bad, Place("bad")), (good, Place("a"))])
        await until(host, good, ["a"])
        await let_pass(60.0)
        await host.send(good, Place("b"))
        await until(host, good, ["a", "b"])
        failure = host.lane._states[bad.partition].outputs.failures_of(str(bad))["mails"]
        assert failure.error == "TimeoutError: deliver did not end within 5 s"
        mails.hangs.clear()
        await until(host, bad, ["bad"])


@in_virtual_time
async def test_a_delivery_that_goes_on_when_it_is_cancelled_holds_up_its_partition_alone() -> None:
    mails = Mails()
    mails.hangs.add("bad")
    mails.stubborn = True
    async with hosts(SHOP, 1, plugins=[mails]) as (cluster, (host,)):
        bad, good = await orders(host, 2)
        elsewhere = await host.create(Order, key="e", near=Ref[Any]("shop", (bad.partition + 1) % 64, "x"))
        await host.send_many([(bad, Place("bad")), (good, Place("a")), (elsewhere, Place("c"))])
        await until(host, elsewhere, ["c"])
        await let_pass(60.0)
        assert await status(host, good) == [], "a second call beside it could deliver twice"
        failure = host.lane._states[bad.partition].outputs.failures_of(str(bad))["mails"]
        assert failure.error.endswith("within 5 s, and still runs though it was cancelled")
        await asyncio.wait_for(host.__aexit__(None, None, None), 20)
        again = Mails()
        other = await started_on(cluster, SHOP, "h1", plugins=[again])
        await until(other, good, ["a"])
        await other.__aexit__(None, None, None)
        mails.stubborn = False


@in_virtual_time
async def test_a_plugin_that_is_down_is_asked_rarely_and_continues_when_it_is_up() -> None:
    mails = Mails()
    count = deliveries.ASIDE + 4
    mails.broken = {str(number): OSError("down") for number in range(count)}
    async with hosts(SHOP, 1, plugins=[mails]) as (_, (host,)):
        several = await orders(host, count)
        await host.send_many([(one, Place(str(number))) for number, one in enumerate(several)])
        await let_pass(120.0)
        before = len(mails.calls)
        await let_pass(120.0)
        assert len(mails.calls) - before < 4 * count
        mails.broken.clear()
        await let_pass(130.0)
        assert sorted(mails.texts, key=int) == [str(number) for number in range(count)]


@in_virtual_time
async def test_a_machine_whose_outputs_are_too_many_waits_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "OUTPUT_BYTES", 3_000)
    mails = Mails()
    mails.broken["0"] = OSError("down")
    async with hosts(SHOP, 1, plugins=[mails]) as (_, (host,)):
        busy, other = await orders(host, 2)
        await host.send_many([(busy, Place(str(number), 1_000)) for number in range(10)])
        await host.send(other, Place("a"))
        await until(host, other, ["a"])
        outputs = host.lane._states[busy.partition].outputs
        await let_pass(5.0)
        waiting = len(outputs.of(str(busy)))
        assert outputs.size_of[str(busy)] > 3_000 and waiting <= 10
        await host.send(busy, Place("late"))
        await let_pass(5.0)
        assert len(outputs.of(str(busy))) == waiting, "it handles nothing"
        mails.broken.clear()
        await until(host, busy, [*map(str, range(10)), "late"])
        assert not outputs.size and not host.lane._held


@in_virtual_time
async def test_a_partition_whose_outputs_are_too_many_holds_the_machines_that_have_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane, "OUTPUTS_BYTES", 3_000)
    mails = Mails()
    mails.broken = {text: OSError("down") for text in ("x", "y")}
    async with hosts(SHOP, 1, plugins=[mails]) as (_, (host,)):
        first, second, third = await orders(host, 3)
        await host.send_many([(first, Place("x", 4_000)), (second, Place("y", 100))])
        await let_pass(5.0)
        await host.send_many([(second, Place("z")), (third, Place("a"))])
        await until(host, third, ["a"])
        assert len(host.lane._states[first.partition].outputs.of(str(second))) == 1
        mails.broken.clear()
        await until(host, second, ["y", "z"])


class Wrong(Event):
    text: str


class Answering(Plugin[Mail]):
    """A plugin that answers what a test says."""

    answers: Any = None

    async def deliver(self, batch: Sequence[Delivery[Mail]]) -> Answers:
        answers: Answers = self.answers
        return answers


class Asks(Machine[Place | Status]):
    run = State(start=True)

    @run.on(Place)
    def place(self, e: Place) -> None:
        self.emit(Answering, Mail(e.text))


OTHER: Ref[Any] = Ref("other", 1, "m")
ANSWERS = [
    ([OTHER], "InvalidArgument: expected answers as pairs of a machine of 'asks' and an event"),
    ([(OTHER, Mail("a"))], "InvalidArgument: expected answers as pairs of a machine of 'asks' and an event"),
    ([(Ref("asks", 77, "m"), Mail("a"))], "InvalidArgument: expected a machine as group/partition/name"),
    ([(Ref("asks", 1, "m"), "text")], "WrongCall: expected an event, found 'text'"),
    ([(Ref("asks", 1, "m"), Mail("a" * 600_000))], "CommitTooLarge: expected answers of at most"),
    (7, "TypeError: 'int' object is not iterable"),
]


@pytest.mark.parametrize(("answers", "error"), ANSWERS)
@in_virtual_time
async def test_wrong_answers_are_errors_of_the_plugin(answers: Any, error: str) -> None:
    plugin = Answering()
    plugin.answers = answers
    async with hosts(App("asks", [Asks], plugins=[Answering]), 1, plugins=[plugin]) as (_, (host,)):
        machine = await host.create(Asks, Place("a"), key="m")
        outputs = host.lane._states[machine.partition].outputs
        while not outputs.failures:
            await let_pass(0.1)
        assert outputs.failures_of(str(machine))["Answering"].error.startswith(error)
        plugin.answers = None
        while outputs.all:
            await let_pass(0.1)


@in_virtual_time
async def test_outputs_of_a_plugin_that_a_host_does_not_know_wait_for_one_that_does() -> None:
    old = App("shop", [Order])
    async with hosts(SHOP, 1, plugins=[Mails()]) as (cluster, (host,)):
        host.rsm.app.plugins["mails"].most  # noqa: B018 - it is declared
        mails = host.lane._deliveries._plugins["mails"]
        assert isinstance(mails, Mails)
        mails.hangs.add("a")
        order = await host.create(Order, Place("a"), key="o")
        await let_pass(1.0)
        await host.__aexit__(None, None, None)
        second = await started_on(cluster, old, "h1")
        await let_pass(10.0)
        assert len(second.lane._states[order.partition].outputs.all) == 1
        await second.__aexit__(None, None, None)
        third = await started_on(cluster, SHOP, "h2", plugins=[Mails()])
        await until(third, order, ["a"])
        await third.__aexit__(None, None, None)


def test_a_host_has_an_object_of_each_plugin(cluster: Any) -> None:
    for plugins, found in (([], "found none of mails"), ([Mails(), Mails()], "Mails twice"), ([Mails], "found <class")):
        with pytest.raises(InvalidArgument, match=found):
            SHOP.objects(plugins)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="found Answering: add the class to App"):
        SHOP.objects([Answering()])
    assert list(SHOP.objects([Mails()])) == ["mails"]


@in_virtual_time
async def test_calls_that_are_too_slow_become_smaller_and_repeat_little() -> None:
    """Four outputs take longer than the time-out, three do not."""
    mails = Mails()
    mails.each_s = 1.5
    async with hosts(SHOP, 1, plugins=[mails]) as (_, (host,)):
        (order,) = await orders(host, 1)
        texts = [str(number) for number in range(40)]
        await host.send_many([(order, Place(text)) for text in texts])
        await until(host, order, texts)
        assert list(dict.fromkeys(mails.texts)) == texts
        assert len(mails.texts) < 3 * len(texts) / 2
