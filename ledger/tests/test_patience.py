"""Waiting for answers with one timer for all: each wait ends with its answer, or when its own time is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from boki_ledger.patience import Patience
from boki_ledger.testing.virtual_time import VirtualTimeLoop, let_pass


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())


async def waited(patience: Patience, answer: asyncio.Future[str]) -> tuple[bool, float]:
    """Whether the answer came, and how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    enough = patience.begin(answer)
    try:
        await enough
    finally:
        patience.end(enough)
    return answer.done(), loop.time() - began


@pytest.mark.parametrize("seed", range(10))
def test_each_wait_ends_with_its_answer_or_its_own_time(seed: int) -> None:
    async def test() -> None:
        rng = random.Random(seed)
        loop = asyncio.get_running_loop()
        patience = Patience(5.0)
        waits: list[asyncio.Task[tuple[bool, float]]] = []
        delays: list[float] = []
        for _ in range(50):
            answer: asyncio.Future[str] = loop.create_future()
            delays.append(rng.choice([0.0, 0.5, 2.0, 4.5, 5.5, 20.0]))
            loop.call_later(delays[-1], answer.set_result, "here")
            waits.append(asyncio.ensure_future(waited(patience, answer)))
            await let_pass(rng.choice([0.0, 0.1, 1.0, 7.0]))
        found = await asyncio.gather(*waits)
        for delay, (came, seconds) in zip(delays, found, strict=True):
            assert came is (delay < 5.0)
            assert seconds == pytest.approx(min(delay, 5.0))
        await let_pass(30.0)
        assert not patience._ends and patience._timer is None, "nothing is left behind"

    run(test)


def test_who_is_cancelled_leaves_the_others_waiting() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        patience = Patience(5.0)
        first, second = (asyncio.ensure_future(waited(patience, loop.create_future())) for _ in range(2))
        await let_pass(1.0)
        first.cancel()
        came, seconds = await second
        assert not came and seconds == pytest.approx(5.0)
        assert first.cancelled() and not patience._ends

    run(test)


def test_an_answer_that_comes_after_the_time_is_still_there() -> None:
    async def test() -> None:
        patience = Patience(5.0)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        came, _ = await waited(patience, answer)
        assert not came
        answer.set_result("late")
        assert await answer == "late"

    run(test)
