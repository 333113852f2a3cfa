"""One workflow's code, with deliveries by hand: what it asks, what it did, and what is wrong with another code."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import bokiflow
from bokiflow import App, NonDeterminism, Workflow
from bokiflow.model.delivery_order import OrderedEvent
from bokiflow.model.flow_events import (
    Cancelled,
    ChildEnded,
    Emitted,
    Fired,
    Invoked,
    Patched,
    Signalled,
    Started,
    Stepped,
)
from bokiflow.model.outcomes import IN_ITS_MODULE, NOWHERE, Failure, Outcome
from bokiflow.runtime.commands import CancelCommand, RunStep, SetTimer
from bokiflow.runtime.instance import Instance
from libs.tests.flow.conftest import on_outer_loop
from libs.tests.flow.shop import Shop


def instance_of(workflow: Workflow[..., Any], *args: Any) -> Instance:
    return Instance(Started("x", workflow.name, "d", [list(args), {}], 1_000), workflow)


async def run(call: Callable[[], Any]) -> Any:
    return await on_outer_loop(call)()


def delivered(*events: Any) -> list[OrderedEvent]:
    return [OrderedEvent(number, 1_000 + number, event) for number, event in enumerate(events, 1)]


def stepped(instance: Instance, key: str, value: Any) -> Stepped:
    wait = instance.pending[key]
    return Stepped("x", key, wait.name, wait.digest, 2_000, Outcome(value))


async def test_a_step_is_asked_for_delivered_and_followed_by_the_next() -> None:
    def check() -> None:
        one = instance_of(Shop().steps, 2)
        one.begin()
        (ask,) = one.commands
        assert isinstance(ask, RunStep) and (ask.key, ask.step.name, ask.args) == ("0:1", "add", (0, 0))
        first = stepped(one, "0:1", 5)
        one.deliver(first, 0)
        assert one.now_ms == 2_000 and one.waits == ["step 'add' (0:2)"]
        one.deliver(stepped(one, "0:2", 6), 0)
        assert one.outcome == Outcome(6)
        again = instance_of(Shop().steps, 2)
        again.replay(delivered(first))
        assert again.waits == ["step 'add' (0:2)"]
        again.drop()

    await run(check)


@pytest.mark.parametrize(
    ("wrong", "expected", "found"),
    [
        ({"key": "0:7"}, "step 'add' (0:7)", "step 'add' (0:1)"),
        ({"name": "other"}, "step 'other' (0:1)", "step 'add' (0:1)"),
        ({"digest": "00"}, "arguments 00", "the same with arguments"),
    ],
)
async def test_another_step_than_the_history_has_is_reported_with_both(
    wrong: dict[str, str], expected: str, found: str
) -> None:
    def check() -> None:
        one = instance_of(Shop().steps, 2)
        one.begin()
        wait = one.pending["0:1"]
        fields = {"key": "0:1", "name": wait.name, "digest": wait.digest, **wrong}
        event = Stepped("x", fields["key"], fields["name"], fields["digest"], 0, Outcome(1))
        again = instance_of(Shop().steps, 2)
        with pytest.raises(NonDeterminism) as caught:
            again.replay(delivered(event))
        assert expected in caught.value.expected and found in caught.value.found and "bring back" in str(caught.value)
        for each in (one, again):
            each.drop()

    await run(check)


async def test_effects_are_compared_in_order() -> None:
    def check() -> None:
        shop = Shop()
        one = instance_of(shop.greet, "y")
        one.begin()
        effects = [event for event, _ in one.effects]
        again = instance_of(shop.greet, "y")
        again.replay(delivered(*effects))
        assert not again.effects
        other = instance_of(shop.greet, "z")
        with pytest.raises(NonDeterminism, match="Sent"):
            other.replay(delivered(*effects))
        none = instance_of(shop.steps, 1)
        with pytest.raises(NonDeterminism, match=r"waits for step 'add' \(0:1\), shop\.py:\d+; bring"):
            none.replay(delivered(Emitted("x", "0:1", "t", 1)))
        for each in (one, again, other, none):
            each.drop()

    await run(check)


async def test_what_is_found_has_the_lines_at_which_the_code_waits_or_how_it_ended() -> None:
    app = App("tests")

    @app.step
    async def charge() -> None: ...

    async def later() -> None:
        async with asyncio.timeout(9):
            await bokiflow.recv("go")

    @app.workflow
    async def flow(ends: bool) -> None:
        if ends:
            raise ValueError("early")
        task = asyncio.create_task(later())
        await asyncio.gather(charge(), task)

    def check() -> None:
        here, first = __file__.rpartition("/")[2], flow.function.__code__.co_firstlineno
        waits = (
            f"code that waits for step 'charge' (0/2:1), {here}:{first + 5}, "
            f"timer (0/1:1), {here}:{later.__code__.co_firstlineno + 2}, signal 'go'"
        )
        found = []
        for ends in (False, True):
            one = instance_of(flow, ends)
            with pytest.raises(NonDeterminism) as caught:
                one.replay(delivered(Emitted("x", "0/2:1", "t", 1)))
            found.append(caught.value.facts["found"])
            one.drop()
        assert found == [waits, "code that has ended with builtins:ValueError: early"]

    await run(check)


async def test_a_timer_that_nobody_set_is_reported() -> None:
    def check() -> None:
        one = instance_of(Shop().steps, 1)
        with pytest.raises(NonDeterminism, match="timer"):
            one.replay(delivered(Fired("x", "0:1", 5)))
        one.drop()

    await run(check)


async def test_sleep_is_a_timer_and_its_time_is_that_of_the_log() -> None:
    def check() -> None:
        one = instance_of(Shop().sleep, 60)
        one.begin()
        assert list(one.commands) == [SetTimer("0:1", 61_000)] and one.timers == ["0:1"]
        one.deliver(Fired("x", "0:1", 61_500), 0)
        assert one.outcome == Outcome(60_500)

    await run(check)


async def test_signals_wait_for_who_receives_them_in_order() -> None:
    def check() -> None:
        one = instance_of(Shop().wait, 2)
        one.begin()
        assert one.waits == ["signal 'go'"]
        for number in (1, 2):
            one.deliver(Signalled("x", "go", number), 0)
        one.deliver(stepped(one, "0:2", 1), 0)
        one.deliver(stepped(one, "0:4", 2), 0)
        assert one.outcome == Outcome([1, 2])

    await run(check)


async def test_a_signal_is_not_lost_with_the_receiver_that_was_cancelled_as_it_came() -> None:
    app = App("a")

    @app.workflow
    async def flow() -> Any:
        receiver = asyncio.create_task(bokiflow.recv("go"))
        other = asyncio.create_task(bokiflow.recv("stop"))
        await other
        receiver.cancel()
        return await bokiflow.recv("go")

    def check() -> None:
        one = instance_of(flow)
        one.begin()
        one.deliver(Signalled("x", "stop", 1), 0)
        one.deliver(Signalled("x", "go", 2), 0)
        assert one.outcome == Outcome(2)

    await run(check)


async def test_children_are_invoked_and_end_and_a_cancelled_parent_cancels_them() -> None:
    def check() -> None:
        shop = Shop()
        one = instance_of(shop.parent, 1)
        one.begin()
        ((event, spawn),) = one.effects
        assert isinstance(event, Invoked) and (event.child, spawn.args) == ("x/0/1:1", [[1], {}])
        one.deliver(ChildEnded("x", "0/1:1", "somebody", Outcome(5)), 0)
        assert len(one.effects) == 1, "another child's end"
        one.deliver(Cancelled("x", "enough"), 0)
        assert one.outcome is not None and one.outcome.cancelled
        notified_child = one.effects[-1][1].notice
        assert isinstance(notified_child, Cancelled) and notified_child.id == "x/0/1:1"

    await run(check)


async def test_a_cancelled_step_is_stopped_and_code_may_clean_up() -> None:
    app = App("a")
    shop = Shop()

    @app.workflow
    async def flow() -> int:
        try:
            return await shop.add(1, 2)
        except asyncio.CancelledError:
            await shop.double.aio(3)
            raise

    def check() -> None:
        one = instance_of(flow)
        one.begin()
        one.deliver(Cancelled("x"), 0)
        assert isinstance(one.commands[1], CancelCommand) and one.outcome is None
        one.deliver(stepped(one, "0:2", 6), 0)
        assert one.outcome is not None and one.outcome.cancelled

    await run(check)


async def test_a_patch_takes_the_new_way_for_the_new_and_the_old_one_for_what_was_there() -> None:
    shop = Shop()
    old_app, new_app = App("a"), App("a")

    @old_app.workflow(name="flow")
    async def old() -> int:
        await shop.add(1, 1)
        return await shop.add(2, 2)

    @new_app.workflow(name="flow")
    async def new() -> int:
        if bokiflow.patched("double instead"):
            await shop.double.aio(1)
        else:
            await shop.add(1, 1)
        return await shop.add(2, 2)

    def check() -> None:
        before = instance_of(old)
        before.begin()
        recorded = stepped(before, "0:1", 2)
        continued = instance_of(new)
        continued.replay(delivered(recorded))
        assert continued.waits == ["step 'add' (0:2)"] and not continued.effects
        fresh = instance_of(new)
        fresh.begin()
        assert fresh.waits == ["step 'double' (0:1)"]
        assert [event for event, _ in fresh.effects] == [Patched("x", "double instead", "double instead")]
        again = instance_of(new)
        again.replay(delivered(fresh.effects[0][0], stepped(fresh, "0:1", 2)))
        assert again.waits == ["step 'add' (0:2)"] and not again.effects
        for each in (before, continued, fresh, again):
            each.drop()

    await run(check)


async def test_a_result_that_is_no_json_is_the_error_of_the_workflow() -> None:
    app = App("a")

    @app.workflow
    async def flow() -> Any:
        return object()

    def check() -> None:
        one = instance_of(flow)
        one.begin()
        assert one.outcome is not None and one.outcome.error is not None
        assert one.outcome.error.type == "bokilib.errors:NotEncodable"

    await run(check)


@pytest.mark.parametrize("asked", [True, False])
async def test_cancelled_is_only_a_workflow_that_was_asked_to_be(asked: bool) -> None:
    app = App("cancels")

    @app.workflow
    async def gives_up() -> None:
        if asked:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    def check() -> Outcome | None:
        one = instance_of(gives_up)
        one.begin()
        return one.outcome

    outcome = await run(check)
    assert outcome.cancelled == asked
    assert asked or (
        outcome.error.type == "builtins:RuntimeError" and "nobody had cancelled it" in outcome.error.message
    )


async def test_a_step_and_its_workflow_share_no_argument_and_no_result() -> None:
    app = App("lists")
    given: list[list[int]] = []

    @app.step
    async def take(rows: list[int]) -> list[int]:
        return rows

    @app.workflow
    async def work() -> list[int]:
        mine = [1]
        given.append(mine)
        found = await take(mine)
        found.append(3)
        return found

    def check() -> None:
        one = instance_of(work)
        one.begin()
        given[0].append(2)
        (ask,) = one.commands
        assert isinstance(ask, RunStep) and ask.args == ([1],)
        event = stepped(one, "0:1", [1])
        one.deliver(event, 0)
        assert one.outcome == Outcome([1, 3]) and event.outcome == Outcome([1])

    await run(check)


async def test_a_stack_without_code_of_the_workflow_ends_with_where_that_is_defined() -> None:
    def check() -> None:
        workflow = Shop().steps
        one = instance_of(workflow, 2)
        machinery = "".join(traceback.format_list([(asyncio.events.__file__, 75, "_run", "")]))
        assert f"line {workflow.function.__code__.co_firstlineno}, in steps\n" in one.stack_of(machinery)
        one.begin()
        assert "in steps" in one.stack_of(machinery) and "_run" not in one.stack_of(machinery)
        one.drop()

    await run(check)


@pytest.mark.parametrize("where", ["a child", "a step"])
async def test_an_error_whose_class_is_missing_is_not_delivered_live_either(where: str) -> None:
    caught: list[BaseException] = []
    app = App("tests")

    @app.step
    async def step() -> None: ...

    @app.workflow
    async def child() -> None: ...

    @app.workflow
    async def parent() -> None:
        try:
            await (child() if where == "a child" else step())
        except bokiflow.StepFailed as error:
            caught.append(error)

    def check() -> None:
        one = instance_of(parent)
        one.begin()
        (wait,) = one.pending.values()
        for known_by, delivers in ((NOWHERE, True), (IN_ITS_MODULE, False)):
            again = instance_of(parent)
            again.begin()
            outcome = Outcome(None, Failure("gone:Declined", "no", known_by=known_by))
            event = Stepped("x", "0:1", wait.name, wait.digest, 0, outcome)
            if where == "a child":
                event = ChildEnded("x", "0:1", "x/0:1", outcome)  # type: ignore[assignment]
            if delivers:
                again.deliver(event, 0)
                assert again.outcome == Outcome() and len(caught) == 1
            else:
                with pytest.raises(NonDeterminism, match="gone:Declined of"):
                    again.deliver(event, 0)
                assert len(caught) == 1 and again.outcome is None
            again.drop()
        one.drop()

    await run(check)
