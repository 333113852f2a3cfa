"""Worker processes that a step ends, at once or after it has blocked them for three leases, and that are started again: others end
beside it, and `cancel` ends it."""

from __future__ import annotations

import asyncio
import sys

import pytest

import boki
from bokiflow import Flow, WorkflowCancelled
from libs.tests.flow.killer_program import BOOK, app

END_WITHIN_S = 90


async def keep_up(url: str, name: str, ended: list[str]) -> None:
    """Start a worker under a name, again whenever it ends."""
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "libs.tests.flow.killer_program", url, name, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await process.wait()
            ended.append(name)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.parametrize(("how", "names"), [("exits", ["one"]), ("blocks", ["one", "two"])])
async def test_others_end_beside_a_step_that_takes_each_worker_down(dev_url: str, how: str, names: list[str]) -> None:
    ended: list[str] = []
    async with boki.connect(dev_url) as client, Flow(app, client.book(BOOK)) as flow:
        killer = await flow.start(app.find(how).call(), id="killer")
        healthy = [await flow.start(app.find("healthy").call(), id=f"healthy {number}") for number in range(5)]
        workers = [asyncio.create_task(keep_up(dev_url, name, ended)) for name in names]
        try:
            async with asyncio.timeout(END_WITHIN_S):
                assert await asyncio.gather(*(one.result() for one in healthy)) == ["done"] * 5
                assert await killer.status() == "running"
                await killer.cancel("it takes its worker down")
                with pytest.raises(WorkflowCancelled):
                    await killer.result()
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    assert ended
