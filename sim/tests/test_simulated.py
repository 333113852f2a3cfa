"""User tests on simulated clusters: they run per seed, find what is planted in them, and say how to run it again."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import boki
import boki.sim
from boki.testing import simulated
from boki_sim import pytest_plugin
from boki_sim.simulated import run
from boki_sim.world.errors import Refused

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it


@simulated(seeds=2, faults="network", seconds=2)
async def test_a_users_test_runs_on_every_seed(cluster: Any, tmp_path: Path) -> None:
    assert tmp_path.name
    async with await cluster.connect() as client:
        book = client.book("orders")
        seqnum = await book.append(b"hello", tags=["a"])
        record = await book.read_next("a", at_least=seqnum)
        assert record is not None
        assert record.data == b"hello"


async def program(cluster: Any) -> tuple[int, float]:
    started = asyncio.get_running_loop().time()
    async with boki.connect(cluster.url) as client:
        seqnums = [await client.book("b").append(b"x") for _ in range(20)]
    await asyncio.sleep(30)
    return seqnums[-1], asyncio.get_running_loop().time() - started


def test_one_seed_is_one_run() -> None:
    first, again = (boki.sim.run(program, seed=5, faults="harsh", seconds=3) for _ in range(2))
    assert first == again
    assert first[1] > 30


async def moves_money(cluster: Any) -> None:
    """Reads, decides, writes, without a condition: two at once both find that they may."""

    async def take(client: boki.Client) -> None:
        book = client.book("account")
        if await book.check_tail("taken") is None:
            await book.append(b"taken", tags=["taken"])

    async with await cluster.connect() as one, await cluster.connect() as other:
        await asyncio.gather(take(one), take(other))
        records = [record async for record in one.book("account").read("taken")]
        assert len(records) <= 1, f"taken {len(records)} times"


def test_a_race_is_found_and_explained() -> None:
    test = simulated(seeds=20, faults="network", seconds=1)(moves_money)
    with pytest.raises(AssertionError, match="taken 2 times") as caught:
        test()
    notes = "\n".join(caught.value.__notes__)
    assert "--sim-seed=" in notes
    assert "none are needed" in notes


def test_the_command_line_names_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    async def notes(cluster: Any) -> None:
        seeds.append(cluster.seed)

    test = simulated(seeds=3, faults="calm", seconds=0.1)(notes)
    test()
    monkeypatch.setattr(pytest_plugin, "_seeds", [77])
    test()
    assert seeds == [1, 2, 3, 77]


def test_a_program_that_reaches_for_the_machine_fails() -> None:
    async def looks_at_the_clock(cluster: Any) -> None:
        time.time()

    with pytest.raises(Refused, match=r"time\.time\(\) by .*test_simulated"):
        run(looks_at_the_clock, seed=1, faults="calm", seconds=0.1)


def test_a_program_that_never_ends_fails() -> None:
    async def waits(cluster: Any) -> None:
        await asyncio.sleep(1_000_000)

    with pytest.raises(AssertionError, match="did not end"):
        run(waits, seed=1, faults="calm", seconds=0.1)


def test_programs_may_have_processes_and_kill_them() -> None:
    async def parent(cluster: Any) -> list[bytes]:
        child = cluster.process("child")

        async def work() -> None:
            async with await cluster.connect() as client:
                for number in range(1_000):
                    await client.book("b").append(f"{number}".encode())

        working = child.start(work())
        await asyncio.sleep(2)
        child.kill()
        async with await cluster.connect() as client:
            await client.book("b").append(b"end")
            records = [bytes(record.data) async for record in client.book("b").read()]
        assert not working.done() or len(records) == 1_001
        return records

    records = run(parent, seed=3, faults="calm", seconds=1)
    assert records[-1] == b"end"
    assert records[:-1] == [f"{number}".encode() for number in range(len(records) - 1)]


def test_the_parameter_has_to_be_there_and_fixtures_stay() -> None:
    async def without() -> None: ...

    with pytest.raises(TypeError, match="to take `cluster`"):
        simulated()(without)

    async def with_fixtures(cluster: Any, tmp_path: Path) -> None: ...

    wrapped: Callable[..., None] = simulated()(with_fixtures)
    assert list(inspect.signature(wrapped).parameters) == ["tmp_path"]
