"""Background tasks end when their owner says so, one way or the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from boki_common.background_tasks import BackgroundTasks, ends_only_with_its_owner, leave_behind
from boki_common.errors import BokiError, DiskFailed


async def test_they_are_waited_for_with_those_they_begin() -> None:
    tasks, done = BackgroundTasks(), list[str]()

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        done.append(name)
        if name == "first":
            tasks.spawn(work("second"), "second")

    tasks.spawn(work("first"))
    await tasks.finish()
    assert done == ["first", "second"]


async def test_closing_cancels_what_runs() -> None:
    tasks, ended = BackgroundTasks(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    tasks.spawn(work())
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == ["cancelled"]
    await tasks.close()


async def _raises_an_error() -> None:
    raise DiskFailed("the disk")


async def _raises_a_group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_raises_an_error())


async def _is_cancelled_from_inside() -> None:
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    await cancelled


async def _returns() -> None: ...


@pytest.mark.parametrize(
    ("work", "kind", "message"),
    [
        (_raises_an_error, DiskFailed, "the disk"),
        (_raises_a_group, ExceptionGroup, "sub-exception"),
        (_is_cancelled_from_inside, BokiError, "'the work' was cancelled from inside"),
        (_returns, BokiError, "'the work' ended without an error"),
    ],
)
async def test_a_task_that_ends_by_itself_is_a_failure_however_it_ends(
    work: Callable[[], Coroutine[Any, Any, None]], kind: type[BaseException], message: str
) -> None:
    failed: list[BaseException] = []
    task = asyncio.create_task(work(), name="the work")
    ends_only_with_its_owner(task, failed.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [type(error) for error in failed] == [kind] and message in str(failed[0])


async def test_a_task_that_its_owner_cancels_is_no_failure() -> None:
    failed: list[BaseException] = []
    task = asyncio.create_task(asyncio.Event().wait(), name="the work")
    ends_only_with_its_owner(task, failed.append)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert failed == []


def test_a_program_ends_without_a_task_that_is_left_behind(capsys: pytest.CaptureFixture[str]) -> None:
    swallowed = list[str]()

    async def stubborn() -> None:
        while len(swallowed) < 100:  # so that a program that waits for it ends too
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append("once")

    async def program() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=0.01)
        leave_behind(task)
        leave_behind(task)

    with asyncio.Runner() as runner:
        runner.run(program())
        assert swallowed == ["once"]
    assert swallowed == ["once"], "the end of the program neither cancels it again nor waits"
    assert "destroyed" not in capsys.readouterr().err
