"""Background tasks end when their owner says so, one way or the other."""

from __future__ import annotations

import asyncio

from boki_common.background_tasks import BackgroundTasks


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
