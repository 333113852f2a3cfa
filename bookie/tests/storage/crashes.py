"""A script that runs until its disk stops, and what it was answered before that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple

from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.runtime.memory_disk import MemoryDisk


class Recorded:
    """What was sent, and what was answered."""

    def __init__(self, world: Any, body_bytes: int = 1_400) -> None:
        self.world = world
        self.repeats = body_bytes // 2
        self.sent: dict[tuple[int, int], bytes] = {}
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.fenced: dict[int, None] = {}

    async def add(self, storage: Storage, ledger_id: int, entry_id: int, *, recovery: bool = False) -> V2Status:
        request = self.world.add(ledger_id, entry_id, bytes([ledger_id, entry_id]) * self.repeats, recovery=recovery)
        self.sent[ledger_id, entry_id] = bytes(request.body)
        status: V2Status = (await self.world.put(storage, request))[0]
        if status is V2Status.OK:
            self.acknowledged[ledger_id, entry_id] = bytes(request.body)
        return status

    async def fence(self, storage: Storage, ledger_id: int) -> V2Status:
        status: V2Status = await self.world.fence(storage, ledger_id)
        if status is V2Status.OK:
            self.fenced[ledger_id] = None
        return status


class Stopped(NamedTuple):
    """Whether the disk stopped before the work was done, and the tasks that there are then.

    They are kept until `end_all_tasks`: one that waits for nothing but a stopped disk is known to nobody else, so it could be
    collected while it is pending, whenever the interpreter looks for garbage.
    """

    early: bool
    tasks: frozenset[asyncio.Task[Any]]


async def end_all_tasks(stopped: Stopped | None = None) -> None:
    """What a killed process leaves: nothing runs on. A stopped disk also stops what tasks do while they end."""
    assert stopped is None or stopped.tasks
    current = asyncio.current_task()
    while tasks := [task for task in asyncio.all_tasks() if task is not current]:
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()


async def until_stopped(disk: MemoryDisk, work: Awaitable[object]) -> Stopped:
    """Runs the work until it is done, or the disk stops. Raises what it raises."""
    running = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(disk.stopped.wait())
    await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
        stopped.cancel()
    return Stopped(not running.done(), frozenset(asyncio.all_tasks()))


async def crash_at(world: Any, disk: MemoryDisk, steps: int, seed: int, work: Awaitable[object]) -> MemoryDisk | None:
    """What is left of the disk when it stopped amid the work, and all that ran with it; None when the work ended before.

    The disk then goes on: what the work left running, such as a bookie, needs it to the end.
    """
    disk.stop_after(steps)
    stopped = await until_stopped(disk, work)
    if not stopped.early:
        disk.go_on()
        return None
    survivor = disk.crash(world.seeded(seed))
    await end_all_tasks(stopped)
    return survivor
