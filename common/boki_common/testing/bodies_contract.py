"""The contract that every implementation of the port `Bodies` keeps: each check takes bodies that run nothing else.

@pytest.mark.parametrize("check", bodies_contract.CHECKS)
async def test_contract(check: Check) -> None:
    await check(ThreadBodies())
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from boki_common.runtime.ports import Bodies

Check: TypeAlias = Callable[[Bodies], Awaitable[None]]
_WHO: Final = contextvars.ContextVar("_WHO", default="nobody")


def _fails() -> None:
    raise KeyError("what the body raised")


async def _error_of(running: Awaitable[object]) -> BaseException | None:
    try:
        await running
    except (KeyError, RuntimeError) as error:
        return error
    return None


async def returns_and_raises(bodies: Bodies) -> None:
    """Check that a caller gets the result of its function, or its error."""
    assert await bodies.run(lambda: 7) == 7
    error = await _error_of(bodies.run(_fails, name="a function that fails"))
    assert isinstance(error, KeyError) and error.args == ("what the body raised",)


async def sees_context(bodies: Bodies) -> None:
    """Check that a function sees the context variables of its caller."""
    _WHO.set("the caller")
    assert await bodies.run(_WHO.get) == "the caller"


async def stop_iteration(bodies: Bodies) -> None:
    """Check that StopIteration becomes a RuntimeError: no future can carry one."""
    error = await _error_of(bodies.run(lambda: next(iter([]))))
    assert isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration)


async def begun_is_told_once(bodies: Bodies) -> None:
    """Check that `begun` is called once, in the thread of the caller, before `run` returns or raises."""
    told: list[int] = []
    await bodies.run(lambda: None, begun=lambda: told.append(threading.get_ident()))
    assert told == [threading.get_ident()]
    assert await _error_of(bodies.run(_fails, begun=lambda: told.append(threading.get_ident())))
    assert told == [threading.get_ident()] * 2


async def given_up(bodies: Bodies) -> None:
    """Check that a caller may be cancelled at any time; then `begun` is not called, and other functions run."""
    for turns in range(8):
        told: list[str] = []
        running = asyncio.ensure_future(bodies.run(lambda: None, begun=partial(told.append, "begun")))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        ended = (await asyncio.gather(running, return_exceptions=True))[0]
        assert told == ["begun"] if ended is None else isinstance(ended, asyncio.CancelledError), ended
        before = list(told)
        assert await bodies.run(lambda: "the next") == "the next"
        await asyncio.sleep(0.01)
        assert told == before, "it was told after its caller had gone"


CHECKS: Final[tuple[Check, ...]] = (returns_and_raises, sees_context, stop_iteration, begun_is_told_once, given_up)
