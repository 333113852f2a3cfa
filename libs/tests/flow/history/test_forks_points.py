"""Forks: where they take leave of their origin, and what they do then."""

from __future__ import annotations

import asyncio

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App
from bokiflow.history.forks import CompletedCall, LeftBehind, forked, left_behind
from bokiflow.model.delivery_order import RecordedEvents, in_order
from bokiflow.model.flow_events import (
    Attempted,
    Begun,
    Cancelled,
    ChildEnded,
    Emitted,
    EnclosingTransaction,
    Invoked,
    Signalled,
    Started,
    Stepped,
    Withdrawn,
)
from bokiflow.model.history_fold import History
from bokiflow.model.outcomes import Outcome, failed
from libs.tests.flow.conftest import until, working
from libs.tests.flow.shop import Shop

DONE = Outcome(1)
STARTED = Started("y", "n", "d", [[], {}], 0, origin="x")


def step(key: str, outcome: Outcome = DONE) -> Stepped:
    return Stepped("x", key, "s", "", 0, outcome)


def history(*records: RecordedEvents) -> History:
    return History(Started("x", "n", "d", [[], {}], 0), 5, None, records, 5, 0)


def keys(found: History) -> list[str]:
    return [getattr(one.event, "key", type(one.event).__name__) for one in in_order(found.records)]


def test_a_fork_is_delivered_what_its_origin_was_in_the_same_order() -> None:
    signal = RecordedEvents(7, 3, 0, (), (Signalled("x", "t", 1),))
    late = RecordedEvents(9, 4, 6, (step("0:1"), Emitted("x", "0:2", "t", 1)))
    last = RecordedEvents(10, 5, 9, (step("0:3"),))
    found = forked(history(signal, late, last), STARTED, None)
    assert keys(found) == ["0:1", "0:2", "Signalled", "0:3"], "delivered after what landed after it"
    assert all(one.seqnum < 10 for one in found.records)
    assert {event.id for one in found.records for event in (*one.own, *one.incoming)} == {"y"}


def test_a_fork_leaves_behind_what_ran_after_its_place_and_is_not_undone() -> None:
    outcomes = {"0:1": DONE, "0:2": failed(OSError()), "0:3": DONE, "0:4": failed(OSError())}
    records = [
        RecordedEvents(6 + at, 0, 5, (step(key, outcome),)) for at, (key, outcome) in enumerate(outcomes.items())
    ]
    assert left_behind(history(*records), None) == LeftBehind((CompletedCall("0:3", "s"),), "0:1"), (
        "a compensation, though it undid 0:1"
    )
    assert left_behind(history(*records), "0:1") == LeftBehind(
        (CompletedCall("0:1", "s"), CompletedCall("0:3", "s")), ""
    )
    assert left_behind(history(records[0]), None) == LeftBehind((), "0:1")


def test_a_fork_leaves_before_what_failed_first_or_what_is_named() -> None:
    records = [
        RecordedEvents(6 + at, 0, 5, (one,))
        for at, one in enumerate([step("0:1"), step("0:2", failed(OSError())), step("0:3")])
    ]
    assert keys(forked(history(*records), STARTED, None)) == ["0:1"]
    assert keys(forked(history(*records), STARTED, "0:3")) == ["0:1", "0:2"]
    assert keys(forked(history(*records), STARTED, "0:1")) == []
    with pytest.raises(boki.InvalidArgument, match="0:9"):
        forked(history(*records), STARTED, "0:9")
    cancelled = RecordedEvents(7, 0, 0, (), (Cancelled("x"),))
    assert keys(forked(history(records[0], cancelled), STARTED, None)) == ["0:1"]


def test_a_fork_while_a_child_runs_is_refused() -> None:
    invoke = RecordedEvents(6, 0, 5, (Invoked("x", "0:1", "x/0:1", "n", "d"), step("0:2")))
    ended = RecordedEvents(8, 0, 0, (), (ChildEnded("x", "0:1", "x/0:1", Outcome(1)),))
    after = RecordedEvents(9, 0, 8, (step("0:3"),))
    with pytest.raises(boki.InvalidArgument, match="x/0:1"):
        forked(history(invoke, ended, after), STARTED, "0:2")
    assert keys(forked(history(invoke, ended, after), STARTED, "0:3")) == ["0:1", "0:2", "0:1"]


def test_children_of_attempts_of_transactions_are_not_those_of_a_fork() -> None:
    attempt = RecordedEvents(6, 0, 0, (Attempted("x", "0:1", "a", "x/0:1~a:1", "n", 0),))
    done = RecordedEvents(8, 0, 5, (step("0:1"), step("0:2", failed(OSError()))))
    assert keys(forked(history(attempt, done), STARTED, None)) == ["0:1"]
    part = Started("x", "n", "d", [[], {}], 0, parent="z", within=EnclosingTransaction(b""))
    with pytest.raises(boki.InvalidArgument, match="fork 'z'"):
        forked(history()._replace(started=part), STARTED, None)


def test_what_older_programs_skip_counts_in_no_place_of_a_fork() -> None:
    withdrawn = RecordedEvents(6, 0, 5, (Begun("x", "0:1", "s"), Withdrawn("x", "0:1", "s")))
    rest = RecordedEvents(8, 0, 7, (step("0:1"), step("0:2", failed(OSError()))))
    plain = RecordedEvents(6, 0, 5, (Begun("x", "0:1", "s"),))
    found, expected = (forked(history(one, rest), STARTED, None).started for one in (withdrawn, plain))
    assert (found.names, found.cursors) == (expected.names, expected.cursors) == ((("x", 2),), (5, 5, 8))


async def test_a_fork_does_again_what_failed_and_nothing_before_it(cluster: MemoryCluster) -> None:
    app, shop = App("shop"), Shop()
    numbers: list[tuple[str, str]] = []
    broken = True

    @app.step
    async def pay(key: str) -> str:
        numbers.append(("pay", key))
        if broken:
            raise OSError("no money")
        return key

    @app.workflow
    async def child(count: int) -> int:
        return await shop.add(count, 1)

    @app.workflow
    async def order(count: int) -> list[str]:
        first = await shop.add(count, 1)
        size = await child(first)
        bokiflow.emit("size", size)
        signal = await bokiflow.recv("go")
        paid = await pay(bokiflow.unique())
        after = await child(size)
        return [str(size), str(signal), paid, str(after), bokiflow.unique()]

    async with working(cluster, app) as worker:
        handle = await worker.start(order.call(1), id="x", attributes={"who": "ann"})
        await handle.signal("go", "now")
        with pytest.raises(OSError, match="no money"):
            await handle.result()
        broken = False
        fork = await handle.fork(id="y")
        assert [item async for item in fork.events("size", follow=False)] == [3]
        found = await fork.result()
        assert found[:2] == ["3", "now"] and found[3] == "4"
        assert numbers[0] == numbers[1], "what is tried again has the key that it had"
        assert shop.ran == ["add 1 1", "add 2 1", "add 3 1"]
        assert await worker.flow.find(who="ann") == ["x", "y"]
        again = await handle.fork(id="y")
        assert await again.result() == found, "it is the same fork"
        with pytest.raises(bokiflow.IdReused):
            await handle.fork(id="x")
        with pytest.raises(bokiflow.NoSuchWorkflow):
            await worker.handle("nobody").fork()
    async with working(cluster, app) as worker:
        whole = await worker.handle("y", order).fork(id="z")
        assert (await whole.result())[:4] == found[:4] and len(numbers) == 2
        early = await worker.handle("y", order).fork(before="0:1")
        await early.signal("go", "now")
        assert (await early.result())[:2] == found[:2] and numbers[-1] != numbers[0]


async def test_a_fork_of_what_was_begun_anew_goes_on_in_that_run(cluster: MemoryCluster) -> None:
    app, shop = App("shop"), Shop()

    @app.workflow
    async def flow(run: int) -> list[bokiflow.Json]:
        await shop.add(run, 0)
        if run < 2:
            bokiflow.restart(run + 1)
        return [run, await bokiflow.recv("go"), await bokiflow.recv("go")]

    async with working(cluster, app) as worker:
        handle = await worker.start(flow.call(0), id="x")
        await handle.signal("go", 1)
        await until(lambda: worker._executors["x"].instance.run == 2 and worker._executors["x"].idle)
        fork = await handle.fork()
        assert await fork.status() == "running"
        await asyncio.gather(handle.signal("go", 2), fork.signal("go", 3))
        assert await handle.result() == [2, 1, 2] and await fork.result() == [2, 1, 3]
        assert shop.ran == ["add 0 0", "add 1 0", "add 2 0"]
