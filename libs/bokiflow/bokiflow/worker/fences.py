"""The fences of workflows that run here after another worker claimed their partition.

The owner of a partition alone claims its workflows. So once another worker owns it, this worker follows the fences of the workflows that it
runs there, and notices a takeover of one that appends nothing. A takeover is reported in a later turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import boki
from boki_common.errors import BokiError
from bokiflow.history import inspection
from bokiflow.model.flow_events import PICKER, Claimed, Ended, Tombed
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.records import tags


class FenceWatch:
    """The followed fences of one worker; it belongs to one event loop."""

    def __init__(self, opened: Log, follower: Follower, worker: str, taken: Callable[[str], None]) -> None:
        """`taken`: called with the id of a workflow that another worker claimed, or that ended. Claims of `worker` do not count."""
        self._log: Final = opened
        self._follower: Final = follower
        self._worker: Final = worker
        self._taken: Final = taken
        self._watched: Final[dict[str, None]] = {}
        self._tasks: Final[dict[asyncio.Task[None], None]] = {}

    def watch(self, id: str, claim: int) -> None:
        """Follow the fence of a workflow after a claim, unless it is followed already."""
        if id not in self._watched:
            self._watched[id] = None
            self._follower.add(tags.flow_own(id), claim + 1, partial(self._saw, id))

    def discard(self, id: str) -> None:
        if self._watched.pop(id, "") is None:
            self._follower.discard(tags.flow_own(id))

    def _saw(self, id: str, item: Read | boki.Gap | BokiError) -> None:
        if isinstance(item, Read):
            for event in PICKER.of(item.record.seqnum, item.envelope, about=id):
                if isinstance(event, Ended | Tombed) or (isinstance(event, Claimed) and event.owner != self._worker):
                    asyncio.get_running_loop().call_soon(self._report, id)
        elif isinstance(item, boki.Gap):
            task = asyncio.get_running_loop().create_task(self._read_owner(id), name="bokiflow fence")
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _read_owner(self, id: str) -> None:
        """Read the owner of a workflow after records of its fence were trimmed."""
        try:
            state = await inspection.newest(self._log, id)
        except BokiError:
            return  # its next append fails
        if state is None or state.ended is not None or state.owner != self._worker:
            self._report(id)

    def _report(self, id: str) -> None:
        if id in self._watched:
            self._taken(id)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
