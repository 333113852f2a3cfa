"""Who notices that a workflow which runs here was claimed by somebody else, though it appends nothing and so is refused nothing.

While a worker owns a partition nobody else claims what it runs there. Once another one owns it, he may: so from then on the fences of what
runs here are followed. What was taken is reported, later in the event loop, and followed no more.
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
    """See the module. Belongs to one event loop."""

    def __init__(self, opened: Log, follower: Follower, worker: str, taken: Callable[[str], None]) -> None:
        """`worker`: whose own claims are passed. `taken`: called with what somebody else has, or ended."""
        self._log: Final = opened
        self._follower: Final = follower
        self._worker: Final = worker
        self._taken: Final = taken
        self._watched: Final[dict[str, None]] = {}
        self._tasks: Final[dict[asyncio.Task[None], None]] = {}

    def watch(self, id: str, claim: int) -> None:
        """Follows the fence of a workflow that runs here under a claim, unless it is followed."""
        if id not in self._watched:
            self._watched[id] = None
            self._follower.add(tags.flow_own(id), claim + 1, partial(self._saw, id))

    def leave(self, id: str) -> None:
        """It does not run here any more."""
        if self._watched.pop(id, "") is None:
            self._follower.discard(tags.flow_own(id))

    def _saw(self, id: str, item: Read | boki.Gap | BokiError) -> None:
        if isinstance(item, Read):
            for event in PICKER.of(item.record.seqnum, item.envelope, about=id):
                if isinstance(event, Ended | Tombed) or (isinstance(event, Claimed) and event.owner != self._worker):
                    asyncio.get_running_loop().call_soon(self._report, id)
        elif isinstance(item, boki.Gap):
            task = asyncio.get_running_loop().create_task(self._look(id), name="bokiflow fence")
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _look(self, id: str) -> None:
        """Something is trimmed: what is there now has the owner."""
        try:
            state = await inspection.newest(self._log, id)
        except BokiError:
            return  # an append will be refused
        if state is None or state.ended is not None or state.owner != self._worker:
            self._report(id)

    def _report(self, id: str) -> None:
        if id in self._watched:
            self._taken(id)

    async def close(self) -> None:
        """Ends what it is about to look at."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
