"""The loop of workflows: any order of deliveries is delivered again with the same steps, in the same order, under the same names."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import math
import random
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest

from bokiflow.errors import NonDeterminism, OnlyInSteps, WorkflowStuck
from bokiflow.runtime import flow_loop
from bokiflow.runtime.flow_loop import FlowLoop, FlowTask, TaskPath, current
from libs.tests.flow.conftest import on_outer_loop

SEEDS = 150


class Code:
    """A workflow by hand: steps are delivered by the test, in any order."""

    def __init__(self) -> None:
        self.loop = FlowLoop(self, self, 1_000)  # type: ignore[abstract]
        self.asked: list[tuple[str, str]] = []
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self.timers: dict[str, int] = {}
        self.root: FlowTask[Any] | None = None
        self.on_misuse: Callable[[Exception], object] = lambda error: pytest.fail(str(error))

    def set_timer(self, key: str, due_ms: int) -> None:
        self.timers[key] = due_ms

    def cancel_timer(self, key: str) -> None:
        del self.timers[key]

    async def step(self, name: str) -> str:
        key = self.loop.next_key()
        self.asked.append((key, name))
        future: asyncio.Future[str] = self.loop.create_future()
        self.waiting[key] = future
        try:
            return await future
        finally:
            del self.waiting[key]

    def misused(self, error: Exception) -> None:
        self.on_misuse(error)

    def begin(self, program: Program) -> None:
        def start() -> None:
            self.root = self.loop.start(program(self))

        self.loop.run(start)

    def deliver(self, kind: str, key: str) -> None:
        if kind == "step":
            self.loop.run(lambda: self.waiting[key].set_result(key))
        else:
            self.loop.now_ms = max(self.loop.now_ms, self.timers.pop(key))
            self.loop.run(lambda: self.loop.fire(key))

    @property
    def done(self) -> bool:
        assert self.root is not None
        return self.root.done()


Program = Callable[[Code], Coroutine[Any, Any, Any]]
Delivered = list[tuple[str, str]]


async def first_of(code: Code) -> str:
    tasks = [asyncio.create_task(code.step(f"a{number}")) for number in range(5)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    won = [task.result() for task in done]
    for task in pending:
        task.cancel()
    await code.step(f"won {won}")
    some, _ = await asyncio.wait({asyncio.create_task(code.step(f"b{number}")) for number in range(5)}, timeout=9)
    for task in some:
        await code.step(f"then {task.result()}")
    return await code.step("end")


async def siblings(code: Code) -> None:
    async def one(number: int) -> None:
        try:
            await code.step(f"a{number}")
            await code.step(f"b{number}")
            if number == 2:
                raise ValueError
        except asyncio.CancelledError:
            await code.step(f"undo {number}")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(one(number))
    except* ValueError:
        await code.step("compensate")


async def timeouts(code: Code) -> None:
    async def one(number: int) -> str:
        try:
            return await asyncio.wait_for(code.step(f"x{number}"), 5)
        except TimeoutError:
            return await code.step(f"late {number}")

    await asyncio.gather(*(one(number) for number in range(3)))
    try:
        async with asyncio.timeout(3):
            await asyncio.sleep(10)
    except TimeoutError:
        await code.step("slept")


async def tools(code: Code) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue(2)
    event = asyncio.Event()

    async def fill(number: int) -> None:
        await queue.put(await code.step(f"fill {number}"))
        event.set()

    shielded = asyncio.shield(asyncio.create_task(code.step("shielded")))
    tasks = [asyncio.create_task(fill(number)) for number in range(4)]
    await event.wait()
    for _ in tasks:
        await code.step(f"got {await queue.get()}")
    await shielded
    for task in asyncio.as_completed([asyncio.create_task(code.step(f"c{number}")) for number in range(3)]):
        await code.step(f"as {await task}")


async def generators(code: Code) -> None:
    """Async generators that are left half-way, by each way to leave one."""

    async def seats(number: int) -> AsyncIterator[str]:
        try:
            for seat in range(3):
                yield await code.step(f"seat {number}.{seat}")
        finally:
            await code.step(f"release {number}")
            await asyncio.sleep(1)
            await code.step(f"released {number}")

    async def one(number: int) -> None:
        found = seats(number)
        with contextlib.suppress(ValueError):
            async for seat in seats(10 + number):
                if number == 1:
                    raise ValueError(seat)
                break
        await anext(found)
        if number == 2:
            del found
        await code.step(f"left {number}")

    await asyncio.gather(*(one(number) for number in range(3)))
    await code.step("all left")
    assert {f"release {number}" for number in (0, 1, 2, 10, 11, 12)} <= {name for _, name in code.asked}


def live(program: Program, chances: random.Random) -> tuple[Delivered, list[tuple[str, str]]]:
    code, delivered = Code(), []
    code.begin(program)
    while not code.done:
        kind, key = chances.choice([*(("step", key) for key in code.waiting), *(("timer", key) for key in code.timers)])
        delivered.append((kind, key))
        code.deliver(kind, key)
    assert code.root is not None
    code.root.result()
    return delivered, code.asked


def replayed(program: Program, delivered: Delivered) -> list[tuple[str, str]]:
    code = Code()
    code.begin(program)
    for kind, key in delivered:
        code.deliver(kind, key)
    asked = list(code.asked)
    code.loop.drop()
    return asked


@pytest.mark.parametrize(
    "program", [first_of, siblings, timeouts, tools, generators], ids=lambda program: program.__name__
)
async def test_replays_of_any_order_ask_for_the_same_steps(program: Program) -> None:
    def all_seeds() -> int:
        histories = set()
        for seed in range(SEEDS):
            delivered, asked = live(program, random.Random(seed))
            histories.add(tuple(delivered))
            assert replayed(program, delivered) == asked, seed
            some = random.Random(seed).randrange(len(delivered))
            assert replayed(program, delivered[:some]) == asked[: len(replayed(program, delivered[:some]))], seed
        return len(histories)

    assert await on_outer_loop(all_seeds)() > SEEDS / 3, "orders differ, or it shows nothing"


async def test_sets_that_hash_by_address_are_found_by_replays() -> None:
    """The planted defect: what `FlowTask` and `FlowFuture` are for."""

    async def planted(code: Code) -> None:
        for thing in {object() for _ in range(64)}:
            await code.step(str(hash(thing) % 7))

    def differ() -> bool:
        kept = []  # so that addresses are not used again
        asked = []
        for _ in range(5):
            code = Code()
            kept.append([object() for _ in range(97)])
            code.begin(planted)
            while code.waiting:
                code.deliver("step", next(iter(code.waiting)))
            asked.append(code.asked)
        return any(one != asked[0] for one in asked)

    assert await on_outer_loop(differ)()


async def refused(program: Program) -> NonDeterminism:
    def run() -> NonDeterminism:
        code = Code()
        with pytest.raises(NonDeterminism) as caught:
            code.begin(program)
        code.loop.drop()
        return caught.value

    found: NonDeterminism = await on_outer_loop(run)()
    return found


async def test_as_completed_over_coroutines_is_refused_and_says_what_to_use() -> None:
    async def program(code: Code) -> None:
        for one in asyncio.as_completed([code.step("a")]):
            await one

    assert "bokiflow.as_completed" in str(await refused(program))


async def test_a_task_made_in_a_callback_is_refused_even_if_the_code_hides_it() -> None:
    made: list[asyncio.Future[str]] = []

    async def program(code: Code) -> None:
        def make() -> None:
            with contextlib.suppress(NonDeterminism):
                made.append(asyncio.ensure_future(code.step("a")))

        asyncio.get_running_loop().call_soon(make)
        await asyncio.sleep(0)
        await code.step("b")

    assert "outside of a task" in str(await refused(program))


async def test_the_loop_is_there_for_its_code_only_and_has_no_sockets() -> None:
    seen: list[Any] = [current()]

    async def program(code: Code) -> None:
        seen.append(current() is code.loop)
        seen.append(asyncio.get_running_loop().time())
        try:
            await asyncio.open_connection("127.0.0.1", 1)
        except OnlyInSteps:
            seen.append("no sockets")

    def run() -> None:
        code = Code()
        code.begin(program)
        assert code.done and not code.loop.is_running() and not code.loop.is_closed() and not code.loop.get_debug()

    await on_outer_loop(run)()
    assert [*seen, current()] == [None, True, 1.0, "no sockets", None]


async def test_code_that_is_dropped_ends_and_its_finally_is_nobodys() -> None:
    ended = []

    async def program(code: Code) -> None:
        try:
            await code.step("a")
        finally:
            ended.append(True)
            asyncio.get_running_loop().call_later(1, print)
            await code.step("never")

    def run() -> None:
        code = Code()
        code.begin(program)
        code.loop.drop()
        assert code.loop.is_closed() and not code.timers

    await on_outer_loop(run)()
    assert ended == [True]


async def left_half_way(code: Code, kept: list[Any]) -> None:
    """Keep an async generator half-way in `kept` alone."""

    async def seats() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            code.asked.append(("finally", type(asyncio.get_running_loop()).__name__))
            await code.step("release")

    kept.append(seats())
    await anext(kept[0])
    del kept
    await code.step("waits")


async def test_a_generator_in_a_cycle_that_calls_a_step_stops_the_code() -> None:
    reported: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def check() -> Code:
        code = Code()
        code.on_misuse = reported.set_result
        cycle: list[Any] = []
        code.begin(lambda code: left_half_way(code, cycle))
        cycle.append(cycle)
        return code

    code = await on_outer_loop(check)()
    await asyncio.to_thread(gc.collect)  # any thread may find it
    assert "contextlib.aclosing" in str(await reported)
    assert code.asked == [("0:1", "waits"), ("finally", "FlowLoop")]
    assert gc.isenabled() and sys.get_asyncgen_hooks().finalizer != code.loop._left


async def test_a_generator_that_is_left_behind_dropped_code_runs_nothing() -> None:
    def check() -> None:
        code, kept = Code(), list[Any]()
        code.begin(lambda code: left_half_way(code, kept))
        code.loop.drop()
        asked.append(code.asked)
        kept.clear()

    asked: list[list[tuple[str, str]]] = []
    await on_outer_loop(check)()
    await asyncio.sleep(0)
    assert asked == [[("0:1", "waits"), ("finally", "FlowLoop")]]


async def test_a_timer_of_the_past_needs_no_log_and_one_that_nobody_waits_for_fires() -> None:
    async def program(code: Code) -> None:
        await asyncio.sleep(-1)
        await asyncio.sleep(1)

    def run() -> None:
        code = Code()
        code.begin(program)
        assert code.timers == {"0:1": 2_000} and code.loop.timers == ["0:1"]
        assert not code.loop.fire("9:9")
        code.deliver("timer", "0:1")
        assert code.done

    await on_outer_loop(run)()


async def test_a_timer_that_never_comes_is_no_timer() -> None:
    async def program(code: Code) -> None:
        for seconds in (math.inf, 1e17):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await code.step("a")
        await asyncio.sleep(math.inf)

    def run() -> None:
        code = Code()
        code.begin(program)
        for _ in range(2):
            code.deliver("step", next(iter(code.waiting)))
        assert not code.timers and not code.done
        code.loop.drop()

    await on_outer_loop(run)()


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda one: type(one).__name__
)
async def test_what_would_end_the_program_ends_its_task_alone(error: BaseException) -> None:
    async def ends() -> None:
        raise error

    async def program(code: Code) -> str:
        task = asyncio.create_task(ends())
        await asyncio.wait([task])
        return type(task.exception()).__name__

    @on_outer_loop
    def check() -> Any:
        code = Code()
        code.begin(program)
        assert code.root is not None
        return code.root.result()

    assert await check() == type(error).__name__


async def test_code_that_only_yields_is_stopped_with_its_stack() -> None:
    async def polls() -> None:
        while True:
            await asyncio.sleep(0)

    async def program(code: Code) -> None:
        await polls()

    def check() -> WorkflowStuck:
        code = Code()
        with pytest.raises(WorkflowStuck, match="poll with") as caught:
            code.begin(program)
        return caught.value

    stuck = await on_outer_loop(check)()
    assert "in program" in stuck.facts["stack"] and "in polls" in stuck.facts["stack"]


async def test_stacks_of_code_that_polls_are_read_where_nothing_interrupts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded: list[bool] = []
    read: list[bool] = []

    def guard(call: Callable[[], None]) -> None:
        guarded.append(True)
        call()
        guarded.pop()

    async def program(code: Code) -> None:
        while True:
            await asyncio.sleep(0)

    def check() -> None:
        code = Code()
        code.loop.guard = guard
        with pytest.raises(WorkflowStuck):
            code.begin(program)

    def stacks(loop: FlowLoop) -> str:
        read.append(bool(guarded))
        return ""

    monkeypatch.setattr(FlowLoop, "stacks", stacks)
    await on_outer_loop(check)()
    assert read == [False]


async def test_code_that_is_stopped_between_two_turns_shows_where_it_waits() -> None:
    async def polls() -> None:
        await asyncio.sleep(0)
        await asyncio.Event().wait()

    async def program(code: Code) -> None:
        await polls()

    def check() -> list[str]:
        code = Code()
        code.begin(program)
        between = traceback.format_list(
            [(asyncio.events.__file__, 75, "cancelled", ""), (flow_loop.__file__, 9, "_run", "")]
        )
        within = [*between, *traceback.format_list([("/shop.py", 7, "counts", "")])]
        return [code.loop.stack_of("".join(lines)) for lines in (between, within)]

    between, within = await on_outer_loop(check)()
    assert "in program" in between and "in polls" in between
    assert "in counts" in within and "in polls" not in within


async def test_many_tasks_and_yields_between_them_are_not_stuck() -> None:
    async def one(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def program(code: Code) -> int:
        return sum(await asyncio.gather(*(one(n) for n in range(60_000))))

    def check() -> int:
        code = Code()
        code.begin(program)
        assert code.root is not None
        return int(code.root.result())

    assert await on_outer_loop(check)() == sum(range(60_000))


MISUSES: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "a thread": lambda: asyncio.to_thread(int),
    "a socket": lambda: asyncio.open_connection("127.0.0.1", 1),
    "a subprocess": lambda: asyncio.create_subprocess_exec("true"),
    "a shell": lambda: asyncio.create_subprocess_shell("true"),
    "a foreign future": lambda: _foreign_future(),
    "a resolver": lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
}


async def _foreign_future() -> Any:
    return await asyncio.wrap_future(concurrent.futures.Future())


@pytest.mark.parametrize("name", MISUSES)
async def test_what_only_a_step_may_call_is_refused_at_once_in_words(name: str) -> None:
    async def program(code: Code) -> str:
        try:
            await MISUSES[name]()
        except OnlyInSteps as error:
            return str(error)
        return "it was let through"

    def check() -> str:
        code = Code()
        code.begin(program)
        assert code.root is not None
        return str(code.root.result())

    assert "Put it into a step" in await on_outer_loop(check)()


async def test_task_groups_and_cancel_scopes_of_anyio_work_as_those_of_asyncio() -> None:
    async def program(code: Code) -> list[str]:
        found = []

        async def one(name: str) -> None:
            found.append(await code.step(name))

        with anyio.move_on_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(one, "a")
                group.start_soon(one, "b")
            await anyio.sleep(60)
        return found

    async def once() -> list[tuple[str, str]]:
        def check() -> list[tuple[str, str]]:
            code = Code()
            code.begin(program)
            for key in reversed(list(code.waiting)):
                code.deliver("step", key)
            code.deliver("timer", next(iter(code.timers)))
            assert code.root is not None and code.root.result() == [key for key, _ in reversed(code.asked)]
            return code.asked

        found: list[tuple[str, str]] = await on_outer_loop(check)()
        return found

    assert await once() == await once()


async def test_a_thread_that_calls_the_loop_is_reported_to_who_runs_the_code() -> None:
    reported: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def program(code: Code) -> None:
        await asyncio.get_running_loop().create_future()

    def check() -> Code:
        code = Code()
        code.on_misuse = reported.set_result
        code.begin(program)
        return code

    code = await on_outer_loop(check)()

    def call() -> None:
        with pytest.raises(OnlyInSteps):
            code.loop.call_soon_threadsafe(print)

    await asyncio.to_thread(call)
    assert "thread" in str(await reported)


def test_tasks_and_calls_are_named_by_their_maker_and_their_order() -> None:
    root = TaskPath.root()
    first, second = root.child(), root.child()
    assert [root.key(), root.key(), first.key(), second.child().key()] == ["0:1", "0:2", "0/1:1", "0/2/1:1"]


def test_names_of_another_run_are_others() -> None:
    assert TaskPath.root(2).child().key() == "r2/0/1:1"
