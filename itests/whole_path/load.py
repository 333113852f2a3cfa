"""A load whose every append is accounted for, and the check of what the log holds afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import boki


@dataclass
class Load:
    """Tasks that append numbered payloads to one book until stopped; `acked` maps payload to its seqnum.

    A payload is unique. One in `unknown` was sent and its outcome never known; it may be in the log once, or not at all.
    """

    book: boki.Book
    tasks: int = 16
    acked: dict[bytes, int] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    _stop: bool = False
    _running: list[asyncio.Task[None]] = field(default_factory=list)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Load:
        self._running = [asyncio.create_task(self._append(task)) for task in range(self.tasks)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def more(self, count: int) -> None:
        """Waits until `count` more appends were answered. Raises what failed a task."""
        wanted = len(self.acked) + count
        while len(self.acked) < wanted:
            self._progress.clear()
            for task in self._running:
                if task.done():
                    task.result()
            await self._progress.wait()

    async def stop(self) -> None:
        """Lets every append under way end, then ends."""
        self._stop = True
        await asyncio.gather(*self._running)

    async def _append(self, task: int) -> None:
        number = 0
        try:
            while not self._stop:
                payload = b"%d/%d" % (task, number)
                number += 1
                self.unknown.add(payload)
                try:
                    self.acked[payload] = await self.book.append(payload, tags=[f"task/{task}"])
                except boki.OutcomeUnknown:
                    continue
                self.unknown.discard(payload)
                self._progress.set()
        finally:
            self._progress.set()


async def stop_and_check(load: Load) -> None:
    """Everything acknowledged is there, where it was said to be, once; nothing else is but what had no outcome."""
    await load.stop()
    book = load.book
    found = [(record.data, record.seqnum) async for record in book.read()]
    places = dict(found)
    assert len(places) == len(found), "a record is in the log twice"
    missing = [payload for payload in load.acked if payload not in places]
    assert not missing, f"{len(missing)} acknowledged appends are lost, the first: {missing[:3]}"
    moved = [payload for payload, seqnum in load.acked.items() if places[payload] != seqnum]
    assert not moved, f"{len(moved)} appends were answered with another seqnum, the first: {moved[:3]}"
    invented = [payload for payload in places if payload not in load.acked and payload not in load.unknown]
    assert not invented, f"records that nobody appended: {invented[:3]}"
    seqnums = [seqnum for _, seqnum in found]
    assert seqnums == sorted(seqnums)
    for task in range(load.tasks):
        tag = f"task/{task}"
        of_task = [record.data async for record in book.read(tag=tag)]
        assert of_task == [data for data, _ in found if data.startswith(b"%d/" % task)], f"stream {tag} differs"
        numbers = [int(data.partition(b"/")[2]) for data in of_task]
        assert numbers == sorted(numbers), f"task {task} awaited each append, but its records are out of order"
