"""Programs on hosts: what a start has and has not, when it is begun again, what meets it, and how a failure is made small."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

import boki
import boki.sim
from boki.testing import MemoryCluster, simulated, virtual_time
from boki_common.errors import InvalidArgument
from boki_sim.faults.faults import Fault
from boki_sim.faults.host_faults import MEETS_HOSTS
from boki_sim.simulated import How, NotEnded, ProgramRun, Runs, SimulatedCluster, run, smallest_script

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it

Cluster = SimulatedCluster


async def counts(env: boki.sim.Environment, *, to: int = 40) -> int:
    """Appends the numbers 0, 1, …, each under the condition that it is the next: knows nothing but what the log has."""
    async with await env.connect() as client:
        book = client.book("numbers")
        while True:
            last = await book.check_tail("n", consistency="linearizable")
            number = 0 if last is None else int(last.data) + 1
            if number == to:
                return number
            try:
                await book.append(b"%d" % number, tags=["n"], expect={"n": None if last is None else last.seqnum})
            except (boki.Conflict, boki.OutcomeUnknown, boki.WriterForgotten):
                pass
            await asyncio.sleep(0.05)


async def numbers_of(cluster: Cluster) -> list[int]:
    async with await cluster.connect() as client:
        return [int(record.data) async for record in client.book("numbers").read("n", consistency="linearizable")]


def run_model(program: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    return run(program, **{"seed": 1, "faults": "calm", "seconds": 5.0, "model": True, **options})


# -- a start, and the next one


def test_each_start_has_a_new_environment_and_begins_as_the_program_does() -> None:
    seen: list[boki.sim.Environment] = []

    async def main(env: boki.sim.Environment) -> str:
        seen.append(env)
        if len(seen) < 3:
            await asyncio.sleep(1_000)
        return env.name

    async def program(cluster: Cluster) -> tuple[str, int]:
        host = cluster.host("worker", main)
        for _ in range(2):
            await asyncio.sleep(5)
            assert host.kill()
            assert not host.running
        return await host.result(), host.starts

    assert run_model(program) == ("worker", 3)
    assert len({id(one) for one in seen}) == len({one.random.token(8) for one in seen}) == 3
    assert len({one.clock for one in seen}) == 1, "the clock is the machine's"


def test_it_is_begun_again_after_a_drawn_pause_and_not_while_it_is_held() -> None:
    async def main(env: boki.sim.Environment) -> None:
        await asyncio.sleep(1_000)

    async def program(cluster: Cluster) -> list[float]:
        loop = asyncio.get_running_loop()
        host = cluster.host("worker", main, restart_s=(1.0, 4.0))
        pauses = []
        for _ in range(5):
            await asyncio.sleep(1)
            host.kill()
            killed = loop.time()
            while not host.running:
                await asyncio.sleep(0.01)
            pauses.append(loop.time() - killed)
        return pauses

    pauses = run_model(program)
    assert all(1.0 <= pause <= 4.1 for pause in pauses)
    assert len({round(pause, 1) for pause in pauses}) > 1


def test_who_ends_with_an_error_of_boki_is_begun_again_other_errors_are_the_tests() -> None:
    starts = itertools.count(1)

    async def gives_up(env: boki.sim.Environment) -> int:
        number = next(starts)
        if number < 3:
            raise boki.Unreachable("nobody there")
        return number

    async def once(cluster: Cluster) -> tuple[int, list[str]]:
        host = cluster.host("worker", gives_up)
        return await host.result(), host.ends

    number, ends = run_model(once)
    assert (number, len(ends)) == (3, 2)
    assert "nobody there" in ends[0]

    async def mistaken(env: boki.sim.Environment) -> None:
        raise KeyError("a mistake")

    async def waits(cluster: Cluster) -> None:
        await cluster.host("worker", mistaken).result()

    with pytest.raises(KeyError, match="a mistake"):
        run_model(waits)


def test_who_returned_is_done_and_who_is_stopped_is_over() -> None:
    cleaned = []

    async def returns(env: boki.sim.Environment) -> str:
        return "done"

    async def serves(env: boki.sim.Environment) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            cleaned.append(env.name)

    async def program(cluster: Cluster) -> None:
        done, server = cluster.host("one", returns), cluster.host("two", serves)
        assert await done.result() == "done"
        await asyncio.sleep(1)
        await server.stop()
        assert cleaned == ["two"]
        with pytest.raises(asyncio.CancelledError):
            await server.result()
        await asyncio.sleep(10)
        assert (done.starts, server.starts, done.running, server.running) == (1, 1, False, False)
        assert not server.kill()

    run_model(program)


def test_a_killed_start_runs_nothing_more_and_its_connections_end() -> None:
    log: list[str] = []

    async def main(env: boki.sim.Environment) -> None:
        client = await env.connect()
        try:
            log.append("begun")
            await client.book("b").append(b"x", tags=["t"])
            await asyncio.sleep(1_000)
        finally:
            log.append("ended")

    async def program(cluster: Cluster) -> tuple[int, list[str]]:
        host = cluster.host("worker", main, restart_s=(1.0, 1.0))
        await asyncio.sleep(3)
        host.kill()
        await asyncio.sleep(3)
        async with await cluster.connect() as client:
            return len([record async for record in client.book("b").read("t")]), [*log]

    assert run_model(program) == (2, ["begun", "begun"])


def test_names_are_of_one_host_and_of_no_role() -> None:
    async def main(env: boki.sim.Environment) -> None: ...

    async def program(cluster: Cluster) -> None:
        cluster.host("worker", main)
        for name in ("worker", "engine-1", "a#b", ""):
            with pytest.raises(InvalidArgument, match="a new name of a host"):
                cluster.host(name, main)

    run_model(program)


# -- what meets it


def test_hosts_on_real_clusters_are_killed_and_what_they_do_is_right() -> None:
    starts: list[int] = []

    async def program(cluster: Cluster) -> None:
        hosts = [cluster.host(f"counter-{number}", counts) for number in range(2)]
        assert [await host.result() for host in hosts] == [40, 40]
        assert await numbers_of(cluster) == list(range(40))
        starts.extend(host.starts for host in hosts)

    for seed in range(1, 6):
        run(program, seed=seed, seconds=6.0)
    assert max(starts) > 1, "none was killed"


def scripted(kind: str, *, target: str = "worker", seconds: float = 2.0, amount: float = 0.0, step: str = "") -> Fault:
    return Fault(1.0, kind, target, seconds, amount, step)


@pytest.mark.parametrize("kind", sorted(MEETS_HOSTS))
def test_each_kind_meets_a_host_on_a_model_and_on_a_cluster(kind: str) -> None:
    target = "worker>model" if kind in ("clog", "reset") else "worker"
    amount = {"slow-link": 50.0, "clock": 60_000.0, "step": 3_600_000.0}.get(kind, 0.0)
    for model in (True, False):
        to = target if model else target.replace("model", "engine-1")
        made = ProgramRun(3, "calm", 6.0, [scripted(kind, target=to, amount=amount)], How(model=model))

        async def program(cluster: Cluster) -> int:
            host = cluster.host("worker", counts)
            assert await host.result() == 40
            assert await numbers_of(cluster) == list(range(40))
            return host.starts

        starts = made.go(program)
        assert sum(made.happened().values()) == 1, made.happened()
        assert starts == (2 if kind in ("kill", "power", "stop") else 1)


def test_a_fault_that_waits_for_a_step_waits_for_the_hosts_own() -> None:
    async def other(env: boki.sim.Environment) -> None:
        await counts(env, to=1_000)

    made = ProgramRun(1, "calm", 6.0, [scripted("kill", step="append answer")], How(model=True))

    async def program(cluster: Cluster) -> tuple[int, int]:
        busy, quiet = cluster.host("busy", other), cluster.host("worker", reads_only)
        await asyncio.sleep(5)
        return busy.starts, quiet.starts

    async def reads_only(env: boki.sim.Environment) -> None:
        async with await env.connect() as client:
            while True:
                await client.book("numbers").check_tail("n")
                await asyncio.sleep(0.1)

    assert made.go(program) == (1, 1)


def test_clocks_of_programs_are_their_machines_and_faults_change_them() -> None:
    script = [scripted("step", amount=7_200_000.0), scripted("sleep", target="sleeper", seconds=3.0)]
    made = ProgramRun(1, "calm", 8.0, script, How(model=True))

    async def looks(env: boki.sim.Environment) -> tuple[float, float, float]:
        """How far wall clock, uptime and the loop's time go while the loop sleeps twice for two seconds."""
        loop = asyncio.get_running_loop()
        wall_ms, up_s, at = env.clock.now_ms(), env.clock.elapsed_s(), loop.time()
        await asyncio.sleep(2)
        await asyncio.sleep(2)
        return (env.clock.now_ms() - wall_ms) / 1000, env.clock.elapsed_s() - up_s, loop.time() - at

    async def program(cluster: Cluster) -> list[Any]:
        hosts = [cluster.host(name, looks) for name in ("worker", "sleeper", "none")]
        return [[round(value) for value in await host.result()] for host in hosts]

    stepped, slept, none = made.go(program)
    assert stepped == [7_204, 4, 4]
    assert slept == [7, 7, 4], "the machine slept: the clock of its loop stood still"
    assert none == [4, 4, 4]


def test_the_sdk_of_a_host_sees_the_clock_of_its_machine() -> None:
    from boki_common.runtime.process import SystemClock

    async def main(env: boki.sim.Environment) -> int:
        await asyncio.sleep(2)
        return SystemClock().now_ms() - env.clock.now_ms()

    made = ProgramRun(1, "calm", 3.0, [scripted("step", amount=86_400_000.0)], How(model=True))
    assert made.go(lambda cluster: cluster.host("worker", main).result()) == 0


def test_a_blocking_body_runs_inline_and_some_seed_kills_between_done_and_returned() -> None:
    async def main(env: boki.sim.Environment, ran: list[int]) -> int:
        def body() -> int:
            ran.append(1)
            return len(ran)

        number = await env.bodies.run(body)
        await asyncio.sleep(0.001)
        return number

    async def program(cluster: Cluster) -> tuple[int, int]:
        ran: list[int] = []
        host = cluster.host("worker", partial(main, ran=ran))
        await asyncio.sleep(0.003)
        host.kill()
        return await host.result(), len(ran)

    results = {run_model(program, seed=seed, seconds=0.1) for seed in range(30)}
    assert results == {(1, 1), (2, 2)}


# -- a seed is a run


async def three_counters(cluster: Cluster) -> tuple[int, ...]:
    hosts = [cluster.host(f"counter-{number}", counts) for number in range(3)]
    for host in hosts:
        await host.result()
    return tuple(host.starts for host in hosts)


@pytest.mark.parametrize("model", [True, False])
def test_one_seed_is_one_run_and_its_script_is_the_same_run_again(model: bool) -> None:
    runs = Runs(4, "harsh", 5.0, How(model=model))
    first, again = runs.under(None), runs.under(None)
    assert first.go(three_counters) == again.go(three_counters)
    assert first.trace.digest() == again.trace.digest()
    assert first.script == again.script
    assert any(fault.target.startswith("counter-") for fault in first.script)
    scripted_run = runs.under(sorted(first.script, key=lambda fault: fault.at))
    scripted_run.go(three_counters)
    assert scripted_run.trace.digest() == first.trace.digest()


def test_another_host_changes_no_fault_of_the_others() -> None:
    def faults_of(names: list[str]) -> dict[str, list[Fault]]:
        made = ProgramRun(4, "harsh", 5.0, None, How(model=True))

        async def program(cluster: Cluster) -> None:
            hosts = [cluster.host(name, counts) for name in names]
            for host in hosts:
                await host.result()

        made.go(program)
        return {name: [one for one in made.script if one.target.startswith(name)] for name in names}

    alone, both = faults_of(["one"]), faults_of(["two", "one"])
    assert alone["one"] == both["one"] != []


# -- small failures


async def trusts_its_memory(env: boki.sim.Environment) -> None:
    """Says that it is paid before it is, and does not look when it begins again."""
    async with await env.connect() as client:
        await client.book("jobs").append(b"begun", tags=["begun"])
        await asyncio.sleep(1.0)
        await client.book("jobs").append(b"done", tags=["done"])


async def one_beginning(cluster: Cluster) -> None:
    hosts = [
        cluster.host("careless", trusts_its_memory),
        cluster.host("counter", counts),
        cluster.host("other", counts),
    ]
    await hosts[0].result()
    async with await cluster.connect() as client:
        begun = [record async for record in client.book("jobs").read("begun")]
    assert len(begun) == 1, f"begun {len(begun)} times"


def test_a_mistake_of_a_host_is_found_and_shrunk_to_the_fault_that_shows_it() -> None:
    with pytest.raises(AssertionError, match=r"begun \d times") as caught:
        simulated(seeds=30, seconds=5, model=True)(one_beginning_of_a_test)()
    notes = "\n".join(caught.value.__notes__)
    assert "absent counter" in notes and "absent other" in notes
    fault = [line for line in notes.splitlines() if " careless " in line]
    assert len(fault) == 1, notes


async def one_beginning_of_a_test(cluster: Any) -> None:
    await one_beginning(cluster)


def test_another_failure_than_the_one_looked_for_is_none() -> None:
    runs = Runs(1, "calm", 3.0, How(model=True, timeout_s=5.0))
    failed = runs.under([scripted("kill", seconds=1.0)])

    async def program(cluster: Cluster) -> None:
        starts: list[boki.sim.Environment] = []

        async def main(env: boki.sim.Environment) -> None:
            starts.append(env)
            await asyncio.sleep(1.5)

        await cluster.host("worker", main).result()  # without the host this does not end: another AssertionError
        assert len(starts) == 1

    with pytest.raises(AssertionError) as caught:
        failed.go(program)
    smallest, count = smallest_script(caught.value, failed, program, runs)
    assert count == 1
    assert [fault.kind for fault in smallest] == ["kill"]


# -- time


def test_days_pass_in_few_steps_and_timers_come_when_they_are_due() -> None:
    day = 86_400

    async def reminds(env: boki.sim.Environment) -> tuple[float, int]:
        begun = env.clock.now_ms()
        await asyncio.sleep(3 * day)
        async with await env.connect() as client:
            seqnum = await client.book("b").append(b"three days later")
        return (env.clock.now_ms() - begun) / 1000 / day, seqnum

    steps = {}

    async def program(cluster: Cluster, days: int) -> float:
        loop: Any = asyncio.get_running_loop()
        host = cluster.host("reminder", reminds)
        async with await cluster.connect() as client:
            await client.book("b").append(b"before")
            before = loop.callbacks
            await cluster.rest(days * day)
            steps[days] = loop.callbacks - before
            await client.book("b").append(b"afterwards")
            assert [bytes(record.data) async for record in client.book("b").read(consistency="linearizable")] == [
                b"before", b"three days later", b"afterwards",
            ]  # fmt: skip
        later: float = (await host.result())[0]
        return later

    for model, days in ((False, 4), (False, 40), (True, 4)):
        took = run(partial(program, days=days), seed=3, faults="calm", seconds=0.1, model=model)
        assert took == pytest.approx(3.0, abs=0.001)
    assert steps[40] < 1.5 * steps[4] + 10_000


def test_a_program_may_go_on_for_as_long_as_it_says() -> None:
    async def waits(cluster: Cluster) -> float:
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(10 * 86_400)
        return asyncio.get_running_loop().time() - begun

    with pytest.raises(NotEnded, match="within 300 s"):
        run_model(waits)
    assert run_model(waits, timeout=11 * 86_400) > 864_000


@virtual_time(seeds=3, faults="harsh", seconds=5)
async def test_virtual_time_has_a_model_hosts_and_faults(cluster: Any) -> None:
    host = cluster.host("counter", counts)
    assert await host.result() == 40
    assert await numbers_of(cluster) == list(range(40))


@virtual_time()
async def test_a_memory_cluster_lives_in_virtual_time_too(cluster: Any) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with MemoryCluster() as memory:
        client = await memory.connect()
        await client.book("b").append(b"one")
        assert await client.book("b").read_next("never", wait=100) is None
        await asyncio.sleep(3_600 - 100)
        records = [record async for record in client.book("b").read()]
    assert records[0].data == b"one"
    assert loop.time() - begun == pytest.approx(3_600, abs=1)
