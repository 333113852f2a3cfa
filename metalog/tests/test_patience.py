"""Waiting and trying again: what ends it, and how the pauses grow."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.errors import BokiError, CorruptData, Unreachable
from boki_metalog.patience import patiently, woken


async def test_an_event_ends_the_wait_and_is_clear_afterwards() -> None:
    wake = asyncio.Event()
    asyncio.get_running_loop().call_soon(wake.set)
    await woken(wake, None)
    assert not wake.is_set()


async def test_the_time_ends_the_wait_too() -> None:
    await woken(asyncio.Event(), 0.001)


async def test_what_passes_is_tried_again_with_growing_pauses() -> None:
    answers: list[BokiError | str] = [Unreachable("1"), Unreachable("2"), Unreachable("3"), "done"]
    pauses: list[float] = []

    async def attempt() -> str:
        answer = answers.pop(0)
        if isinstance(answer, BokiError):
            raise answer
        return answer

    found = await patiently(
        attempt,
        first_s=0.001,
        limit_s=0.002,
        passing=lambda error: error.retryable,
        waits=lambda _, pause_s: pauses.append(pause_s),
    )
    assert found == "done"
    assert pauses == [0.001, 0.002, 0.002]


async def test_what_does_not_pass_is_raised_at_once() -> None:
    async def attempt() -> None:
        raise CorruptData("damaged")

    with pytest.raises(CorruptData):
        await patiently(
            attempt,
            first_s=1,
            limit_s=1,
            passing=lambda error: error.retryable,
            waits=lambda *_: pytest.fail("there is nothing to wait for"),
        )
