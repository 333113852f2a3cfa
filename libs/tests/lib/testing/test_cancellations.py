"""`bokilib.testing.Cancellations`: calls are cancelled in flight, and those that hide it are found, as are tasks that run on."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki_common.testing.machine import SeededRandom
from bokiflow.testing import in_virtual_time
from bokilib.testing import CallCancelled, Cancellations, all_ended, until


@in_virtual_time
async def test_a_call_in_flight_is_cancelled_and_its_outcome_is_unknown() -> None:
    for seed in range(20):
        cancels, ended = Cancellations(SeededRandom(seed), one_in=1), asyncio.Event()

        async def waits(ended: asyncio.Event = ended) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with pytest.raises(boki.OutcomeUnknown):
            await cancels.call(waits)
        assert cancels.cancelled == 1
        assert ended.is_set() or not asyncio.all_tasks() - {asyncio.current_task()}, f"seed {seed}: the call runs on"


@in_virtual_time
async def test_errors_and_results_of_calls_that_end_before_are_theirs() -> None:
    async def fails() -> int:
        raise boki.Conflict("lost")

    async def returns() -> int:
        return 5

    found: list[int] = []
    for seed in range(40):
        cancels = Cancellations(SeededRandom(seed), one_in=1)
        for call in (fails, returns):
            try:
                found.append(await cancels.call(call))
            except (boki.Conflict, CallCancelled):
                pass
    assert found and set(found) == {5}
    assert await Cancellations(SeededRandom(1), one_in=0).call(returns) == 5


@in_virtual_time
async def test_a_call_that_hides_its_cancellation_is_found() -> None:
    async def hides() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return 5

    found: list[int | BaseException] = []
    for seed in range(20):
        made = Cancellations(SeededRandom(seed), one_in=1).call(hides)
        found += await asyncio.gather(made, return_exceptions=True)
    texts = [str(error) for error in found if isinstance(error, AssertionError)]
    assert len(texts) > 10 and all("as if it had not been cancelled" in text for text in texts)
    assert all(isinstance(error, (AssertionError, CallCancelled)) for error in found)  # or it had not begun


@in_virtual_time
async def test_tasks_that_run_on_are_found() -> None:
    def running() -> list[str]:
        return sorted(task.get_name() for task in asyncio.all_tasks())

    beats = asyncio.create_task(asyncio.Event().wait(), name="bokilib members")
    await all_ended(running, "bokiflow")
    with pytest.raises(AssertionError, match=r"run on 60 s after their owner was left: \['bokilib members'\]"):
        await all_ended(running, "bokiflow", "bokilib members")
    beats.cancel()
    await all_ended(running, "bokilib members")


@in_virtual_time
async def test_a_life_ends_by_itself_or_when_it_is_over() -> None:
    async def fails() -> None:
        raise boki.Conflict("lost")

    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(boki.Conflict):
        await until(lambda: False, fails)
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(3.0, over.set)
    await until(over.is_set, waits)
    assert asyncio.all_tasks() == {asyncio.current_task()}
