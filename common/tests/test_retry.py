"""Waiting and trying again: what ends it, and how the pauses grow."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.backoff import Backoff
from boki_common.errors import BokiError, CorruptData, Unreachable
from boki_common.retry import event_or_timeout, retry


async def test_an_event_ends_the_wait_and_is_clear_afterwards() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await event_or_timeout(event, None)
    assert not event.is_set()


async def test_the_time_ends_the_wait_too() -> None:
    assert not await event_or_timeout(asyncio.Event(), 0.001)


async def test_what_is_retryable_is_tried_again_with_growing_pauses() -> None:
    answers: list[BokiError | str] = [Unreachable("1"), Unreachable("2"), Unreachable("3"), "done"]
    pauses: list[float] = []

    async def attempt() -> str:
        answer = answers.pop(0)
        if isinstance(answer, BokiError):
            raise answer
        return answer

    assert await retry(attempt, Backoff(0.001, 0.002), on_failure=lambda _, pause_s: pauses.append(pause_s)) == "done"
    assert pauses == [0.001, 0.002, 0.002]


@pytest.mark.parametrize(("error", "timeout_s"), [(CorruptData("damaged"), 60.0), (Unreachable("away"), 0.0)])
async def test_what_is_not_retryable_or_comes_too_late_is_raised_at_once(error: BokiError, timeout_s: float) -> None:
    async def attempt() -> None:
        raise error

    with pytest.raises(type(error)):
        await retry(
            attempt,
            Backoff(1, 1),
            on_failure=lambda *_: pytest.fail("there is nothing to wait for"),
            timeout_s=timeout_s,
        )
