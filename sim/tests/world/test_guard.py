"""The guard stops whoever reaches for the machine, names the line, and puts everything back."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from boki_common.runtime.process import SystemClock, SystemRandom
from boki_sim.world.errors import Refused
from boki_sim.world.guard import EPOCH_S, guarded
from boki_sim.world.loop import START_S

MACHINE: list[tuple[str, Callable[[], Any]]] = [
    ("time.time", lambda: time.time()),
    ("time.monotonic", lambda: time.monotonic()),
    ("time.sleep", lambda: time.sleep(0)),
    ("random.random", lambda: random.random()),
    ("random.choice", lambda: random.choice([1])),
    ("os.urandom", lambda: os.urandom(1)),
    ("open", lambda: open(__file__).close()),
    ("io.open", lambda: open(__file__).close()),
    ("os.open", lambda: os.close(os.open(__file__, os.O_RDONLY))),
    ("socket.socket", lambda: socket.socket().close()),
    ("threading.Thread.start", lambda: threading.Thread(target=print).start()),
]


@pytest.mark.blocking_allowed  # the guard's patches and blockbuster's would lie on top of each other
@pytest.mark.parametrize(("name", "call"), MACHINE, ids=[name for name, _ in MACHINE])
def test_the_machine_is_out_of_reach(simulation: Any, name: str, call: Callable[[], Any]) -> None:
    async def scenario() -> None:
        with pytest.raises(Refused, match=r"test_guard\.py:\d+"):
            call()

    with guarded(simulation.loop, 1) as guard:
        simulation.run(scenario())
    (line,) = guard.refused
    assert name.split(".")[-1] in line
    call()  # everything is back


@pytest.mark.blocking_allowed
def test_whoever_swallows_the_refusal_is_still_found(simulation: Any) -> None:
    async def scenario() -> None:
        with suppress(Exception):
            time.time()

    with guarded(simulation.loop, 1) as guard:
        simulation.run(scenario())
    assert "time.time()" in guard.refused[0]


@pytest.mark.blocking_allowed
def test_the_real_ports_get_the_simulations_clock_and_randomness(make_simulation: Any) -> None:
    async def asks() -> tuple[int, bytes, int, list[int]]:
        await asyncio.sleep(10)
        ports = SystemRandom()
        return SystemClock().now_ms(), ports.token(8), ports.below(1000), ports.shuffled(range(10))

    def answers(seed: int) -> list[Any]:
        simulation = make_simulation(seed)
        with guarded(simulation.loop, seed):
            return [simulation.run(simulation.process(name).start(asks())) for name in "ab"]

    first, again, other = answers(1), answers(1), answers(2)
    assert first == again
    assert first[0][1:] != first[1][1:], "each process has randomness of its own"
    assert first != other
    assert abs(first[0][0] / 1000 - (EPOCH_S + START_S + 10)) < 0.1


@pytest.mark.blocking_allowed
def test_other_threads_and_tools_are_let_through(simulation: Any, tmp_path: Path) -> None:
    times: list[float] = []
    wanted = threading.Event()

    def other() -> None:
        wanted.wait()
        times.append(time.time())

    thread = threading.Thread(target=other)
    thread.start()
    with guarded(simulation.loop, 1) as guard:
        wanted.set()
        thread.join()
        assert simulation.run(asyncio.sleep(0, result=1)) == 1
    assert times[0] > EPOCH_S - 86_400 * 365
    assert guard.refused == []
