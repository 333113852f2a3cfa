"""The loop: virtual time, order within a process, the seed's order between them, kills and pauses, refusals."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import Any

import pytest

from boki_sim.world.errors import Deadlock, Refused, Spinning
from boki_sim.world.loop import COMPACT_ABOVE, START_S, STEPS_A_LOOK, SimLoop


def test_time_stands_still_and_jumps(simulation: Any) -> None:
    loop = simulation.loop

    async def scenario() -> list[float]:
        times = [loop.time()]
        for _ in range(1000):
            await asyncio.sleep(0)
        times.append(loop.time())
        await asyncio.sleep(3600)
        return [*times, loop.time()]

    assert loop.time() == START_S
    before, after, later = simulation.run(scenario())
    assert before == after
    assert 3600 <= later - after < 3600.01


def test_callbacks_of_one_process_run_in_order(simulation: Any) -> None:
    ran: list[int] = []
    process = simulation.process("one")
    for number in range(100):
        process.call_soon(ran.append, number)
    simulation.run(asyncio.sleep(0.1))
    assert ran == list(range(100))


def order_of_processes(make_simulation: Any, seed: int) -> list[str]:
    simulation = make_simulation(seed)
    ran: list[str] = []

    async def main(name: str) -> None:
        for _ in range(20):
            ran.append(name)
            await asyncio.sleep(0)

    tasks = [simulation.process(name).start(main(name)) for name in "abc"]
    simulation.run(asyncio.wait(tasks))
    return ran


def test_the_seed_chooses_whose_turn_it_is(make_simulation: Any) -> None:
    assert order_of_processes(make_simulation, 1) == order_of_processes(make_simulation, 1)
    assert len({tuple(order_of_processes(make_simulation, seed)) for seed in range(5)}) == 5


def test_timers_are_late_never_early(simulation: Any) -> None:
    loop = simulation.loop
    found: list[float] = []

    async def scenario() -> None:
        start = loop.time()
        for number in range(200):
            loop.call_later(number / 100, lambda n=number: found.append(loop.time() - start - n / 100))
        await asyncio.sleep(3)

    simulation.run(scenario())
    assert len(found) == 200
    assert min(found) >= 0
    assert 0 < max(found) < 0.001


def test_a_killed_process_runs_nothing_any_more(simulation: Any) -> None:
    seen: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            seen.append("finally")

    async def scenario() -> None:
        process = simulation.process("victim")
        process.on_death.append(lambda: seen.append("dead"))
        process.start(main())
        await asyncio.sleep(1)
        process.kill()
        process.call_soon(seen.append, "call")
        await asyncio.sleep(60)

    simulation.run(scenario())
    assert seen == ["dead"]


def test_an_error_that_a_process_died_before_hearing_is_missed_by_nobody(simulation: Any) -> None:
    async def scenario() -> None:
        process = simulation.process("victim")

        async def main() -> None:
            # Harsh seed 7712024: a sequencer refused a barrier, and kill -9 came in the same turn.
            answer = asyncio.get_running_loop().create_future()
            answer.add_done_callback(lambda answer: answer.exception())
            found_late: list[Any] = [answer]
            found_late.append(found_late)
            answer.set_exception(OSError("dropped"))
            process.kill()

        process.start(main())
        await asyncio.sleep(1)
        gc.collect()

    simulation.run(scenario())
    assert not simulation.loop.faults


def test_a_task_that_only_its_next_turn_knows_dies_in_silence_with_its_process(simulation: Any) -> None:
    async def scenario() -> None:
        process = simulation.process("victim")

        async def main() -> None:
            waiting = asyncio.ensure_future(asyncio.Event().wait())
            await asyncio.sleep(0)
            waiting.cancel()
            del waiting
            process.kill()

        process.start(main())
        await asyncio.sleep(1)

    simulation.run(scenario())
    assert not simulation.loop.faults


def test_a_kill_after_so_many_callbacks_meets_any_await(simulation: Any) -> None:
    steps: list[int] = []

    async def main() -> None:
        for number in range(100):
            steps.append(number)
            await asyncio.sleep(0)

    process = simulation.process("victim")
    process.start(main())
    process.kill_after(40)
    simulation.run(asyncio.sleep(1))
    assert not process.alive
    assert steps == list(range(40))


def test_a_paused_process_goes_on_where_it_was(simulation: Any) -> None:
    loop = simulation.loop
    times: list[float] = []

    async def main() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            times.append(loop.time() - START_S)

    async def scenario() -> None:
        process = simulation.process("paused")
        process.start(main())
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(3)

    simulation.run(scenario())
    assert [round(time) for time in times] == [1, 12, 13]


def test_the_clock_of_a_process_that_sleeps_stands_still_and_so_do_its_timers(simulation: Any) -> None:
    loop = simulation.loop
    times: list[tuple[float, float]] = []

    async def main() -> None:
        for _ in range(3):
            async with asyncio.timeout(1.5):
                await asyncio.sleep(1)
            times.append((loop.time() - START_S, loop.now - START_S))

    async def scenario() -> float:
        process, other = simulation.process("asleep"), simulation.process("awake")
        process.start(main())
        await asyncio.sleep(1.5)
        process.sleep()
        process.pause()  # it is, already
        await other.start(asyncio.sleep(10))
        process.resume()
        process.resume()
        await asyncio.sleep(3)
        return float(loop.time()) - START_S

    assert round(simulation.run(scenario()), 1) == 14.5
    assert [(round(mine, 1), round(worlds, 1)) for mine, worlds in times] == [(1, 1), (2, 12), (3, 13)]


def test_sets_of_tasks_have_the_order_of_their_making(make_simulation: Any) -> None:
    async def scenario() -> list[str]:
        tasks = {asyncio.ensure_future(asyncio.sleep(0)): number for number in range(50)}
        done, _ = await asyncio.wait(tasks)
        return [str(tasks[task]) for task in done]

    orders = [make_simulation(1).run(scenario()) for _ in range(3)]
    assert orders[0] == orders[1] == orders[2]


def test_what_spins_is_named(monkeypatch: pytest.MonkeyPatch, simulation: Any) -> None:
    monkeypatch.setattr("boki_sim.world.loop.SPIN_CALLBACKS", 1_000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    process = simulation.process("busy")
    process.start(spin(), name="the busy task")
    with pytest.raises(Spinning, match=r"busy.*the busy task"):
        simulation.run(asyncio.sleep(1))


def test_waiting_for_nothing_is_a_deadlock(simulation: Any) -> None:
    async def scenario() -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await waiting

    with pytest.raises(Deadlock, match="nothing is ready"):
        simulation.run(scenario())


def test_what_the_machine_decides_wakes_who_awaits_it_unless_paused_or_dead(simulation: Any) -> None:
    loop = simulation.loop
    woken: dict[str, float] = {}

    async def waits(name: str, process: Any) -> None:
        await loop.settled_after(process, 2)
        woken[name] = loop.time()

    processes = {name: simulation.process(name) for name in ("runs", "pauses", "dies")}
    for name, process in processes.items():
        process.start(waits(name, process))

    async def scenario() -> None:
        await asyncio.sleep(1)
        processes["pauses"].pause()
        processes["dies"].kill()
        await asyncio.sleep(3)
        assert woken == {"runs": START_S + 2}
        processes["pauses"].resume()
        await asyncio.sleep(1)

    simulation.run(scenario())
    assert sorted(woken) == ["pauses", "runs"]


def test_a_timer_that_is_cancelled_does_not_run_and_many_of_them_are_thrown_out(simulation: Any) -> None:
    loop = simulation.loop
    ran: list[int] = []

    async def scenario() -> None:
        for number in range(3 * COMPACT_ABOVE):
            timer = loop.call_later(5, ran.append, number)
            if number:
                timer.cancel()
                timer.cancel()
                assert timer.cancelled()
        assert len(loop.timers) < 2 * COMPACT_ABOVE
        soon = loop.call_soon(ran.append, -1)
        soon.cancel()
        await asyncio.sleep(6)

    simulation.run(scenario())
    assert ran == [0]


def test_the_watch_knows_who_ran_since_it_looked(simulation: Any) -> None:
    moves: list[list[str]] = []
    simulation.loop.watch = lambda moved: moves.append([process.name for process in moved])

    async def works(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    busy, idle = simulation.process("busy"), simulation.process("idle")
    idle.start(works(1))
    simulation.run(asyncio.sleep(1))
    moves.clear()
    simulation.run(asyncio.wait([busy.start(works(5 * STEPS_A_LOOK))]))
    assert len(moves) >= 4
    assert all("busy" in names and "idle" not in names for names in moves[1:-1])


def test_threads_and_look_ups_are_refused(simulation: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(Refused, match="run_in_executor"):
            await loop.run_in_executor(None, print)
        with pytest.raises(Refused, match="look-up of example"):
            await loop.getaddrinfo("example", 1)
        with pytest.raises(Refused, match="subprocess"):
            await asyncio.create_subprocess_exec("true")
        with pytest.raises(NotImplementedError):
            loop.add_signal_handler(1, print)

    simulation.run(scenario())


def test_exceptions_that_nobody_catches_are_kept(simulation: Any) -> None:
    def fails() -> None:
        raise ValueError("nobody sees me")

    process = simulation.process("careless")
    process.call_soon(fails)
    simulation.run(asyncio.sleep(1))
    (fault,) = simulation.loop.faults
    assert fault["process"] == "careless"
    assert str(fault["exception"]) == "nobody sees me"


def test_the_end_is_quiet_whatever_still_waits() -> None:
    loop = SimLoop(1)

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(100)

    process = loop.process("stubborn", "10.0.0.1")
    task = process.start(stubborn())
    loop.run_until_complete(asyncio.sleep(1))
    loop.end()
    loop.end()
    assert loop.is_closed()
    assert not task.done()


def test_tasks_that_are_made_while_others_are_ended_are_ended_too() -> None:
    loop = SimLoop(1)
    late: list[asyncio.Task[None]] = []

    async def tidy_up() -> None:
        await asyncio.sleep(1)

    async def main() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            late.append(asyncio.ensure_future(tidy_up()))

    _ = loop.process("tidy", "10.0.0.1").start(main())
    loop.run_until_complete(asyncio.sleep(1))
    loop.end()
    coroutine = late[0].get_coro()
    assert inspect.iscoroutine(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
