"""A worker whose workflow has a lock is killed with -9 while it uses what is locked: another one goes on with it and gives the lock back,
and whoever waits has it. How long that may take is asserted in virtual time (`test_lock_hosts`); here it is printed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import boki
from bokiflow import Flow, Handle
from bokilib.records import tags
from libs.tests.flow.locks.test_locks import check_locks
from libs.tests.flow.seats_program import BOOK, LEASE_S, app_of


@asynccontextmanager
async def worker(url: str, name: str, how: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that works."""
    command = [sys.executable, "-m", "libs.tests.flow.seats_program", url, name, how]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"works\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def first_of(handle: Handle[int]) -> int:
    """The number that it prints, under which it has the lock."""
    async for number in handle.events("has"):
        return int(str(number))
    raise AssertionError("it printed nothing")


async def both_came(book: boki.Book) -> None:
    """Waits until two are in the lock's queue."""
    came = 0
    async for item in book.read(tags.lock("a"), follow=True):
        came += isinstance(item, boki.Record)
        if came == 2:
            return


@pytest.mark.processes
async def test_a_holder_that_is_killed_is_gone_on_with_and_the_next_one_has_the_lock(dev_url: str) -> None:
    app = app_of(hangs=False)
    async with (
        boki.connect(dev_url) as client,
        Flow(app, client.book(BOOK)) as flow,
        worker(dev_url, "one", "hangs") as killed,
    ):
        sit = app.find("sit")
        holds = await flow.start(sit.call("a"), id="holds")
        number = await first_of(holds)
        async with worker(dev_url, "two", "goes"):
            waits = await flow.start(sit.call("a"), id="waits")
            await both_came(client.book(BOOK))
            killed.kill()
            began_s = asyncio.get_running_loop().time()
            assert await holds.result() == number < await waits.result()
            took_s = asyncio.get_running_loop().time() - began_s
            assert await check_locks(client.book(BOOK)) == {"a": 2}
    sys.stdout.write(f"the next one has the lock {took_s:.1f} s after kill -9, the lease is {LEASE_S:g} s\n")
