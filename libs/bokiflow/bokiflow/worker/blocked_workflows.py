"""Blocked workflows, passed on to a worker whose code can run them while the owner of their partition lives.

- A record that blocks a workflow, resumes it, or claims it from beyond its partition joins one stream of the group, which all workers
  follow. The stream names what to look at; where a workflow stands is read from its fence. Workers that are being drained say so there
  too.
- A worker tries a blocked workflow once with the code that it has, by a claim that expects the claim which blocked it; and once more when
  its code changes, or the workflow is resumed. It appends nothing for a workflow that its program lacks.
- What is stuck (WorkflowStuck) is not passed on: its code would keep the next worker from running others.
- Exactly once: each record of a workflow expects the newest claim of its fence. So of two workers that try it one gets it, and nothing of
  the other is in the log. The claim of the partition protects only what is started there.
- Nothing sent to it is missed: before its claim the worker follows what is sent to the partition, from the claim that blocked it on. The
  owner of the partition learns from the stream who runs the workflow, and claims it when that worker dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

import boki
from boki_common.errors import BokiError
from bokiflow.client.app import App
from bokiflow.history import inspection
from bokiflow.history.ends import is_stuck
from bokiflow.history.instance_state import InstanceState
from bokiflow.model.flow_events import PICKER, Claimed, Leaving, Resumed
from bokiflow.worker.peers import Peers
from bokiflow.worker.takeover import Takeover
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.records import tags

MOST: Final = 65_536
"""Workflows that are to be looked at, and those that were tried. Of what is more the oldest are dropped: those to be looked at wait until
their partition moves or they are recorded again (once a day), those that were tried may be tried once more."""
PAUSE_S: Final = 0.1
"""Between the looks of two workers, so that they do not all try the same."""
PAUSES: Final = 20


class BlockedWorkflowsHost(Protocol):
    """The worker that may try blocked workflows."""

    @property
    def log(self) -> Log: ...

    @property
    def finishing(self) -> bool:
        """True while the worker is being drained: it takes nothing new."""

    def runs(self, id: str) -> bool:
        """Return True if a workflow runs here, or is about to."""

    def is_mine(self, id: str) -> bool:
        """Return True if this worker owns the partition of a workflow."""

    def follow_sent(self, partition: int, start: int) -> None:
        """Follow what is sent to workflows of a partition."""

    def saw_leaving(self, leaving: Leaving, seqnum: int) -> None:
        """Note that another worker is being drained, and claim what it runs no more."""

    def spawn(self, work: Callable[[], Coroutine[None, None, object]]) -> None:
        """Run something in the background, while the worker is open."""


class BlockedWorkflows:
    """See the module."""

    def __init__(self, host: BlockedWorkflowsHost, app: App, takeover: Takeover, peers: Peers) -> None:
        self._host: Final = host
        self._app: Final = app
        self._takeover: Final = takeover
        self._peers: Final = peers
        self._pending: Final[dict[str, None]] = {}
        """Workflows to look at, until one is found that need not be."""
        self._left: Final[dict[str, None]] = {}
        """Blocked workflows that this worker has tried, or whose code it lacks."""
        self._soon = False

    def begin(self, follower: Follower) -> None:
        """Follow the stream of the group, from its beginning."""
        follower.add(tags.flow_blocked(self._app.group), 1, self._saw)

    def _saw(self, item: Read | boki.Gap | BokiError) -> None:
        if not isinstance(item, Read):
            return  # what is trimmed was recorded again, or is not blocked any more
        for event in PICKER.of(item.record.seqnum, item.envelope):
            if isinstance(event, Leaving) and event.group == self._app.group:
                self._host.saw_leaving(event, item.record.seqnum)
            if isinstance(event, Claimed | Resumed):
                if isinstance(event, Resumed):
                    self._left.pop(event.id, None)
                _put(self._pending, event.id)
        if self._pending and not self._soon:
            self._soon = True
            self._host.spawn(self._look_soon)

    async def _look_soon(self) -> None:
        try:
            before = sum(name < self._peers.name for name in self._peers.alive())
            await asyncio.sleep(PAUSE_S * min(before, PAUSES))
        finally:
            self._soon = False
        await self.look()

    def tried(self, id: str) -> None:
        """This worker cannot run a workflow with the code that it has."""
        _put(self._left, id)

    def has_tried(self, id: str) -> bool:
        """Return True if this worker has tried a workflow with the code that it has, and it was not resumed since."""
        return id in self._left

    def code_changed(self) -> None:
        """Look again at all that is blocked."""
        for id in self._left:
            _put(self._pending, id)
        self._left.clear()

    async def look(self) -> None:
        """Look at what the stream named, and try what is blocked. What fails by an error of the log is tried at the next look."""
        if self._host.finishing:
            return
        ids = list(self._pending)
        self._pending.clear()  # what is named meanwhile is looked at again
        try:
            states = await inspection.newest_of(self._host.log, ids)
        except BaseException:
            self._pending.update(dict.fromkeys(ids))
            raise
        for id, state in zip(ids, states, strict=True):
            if self._takeover.is_claiming(id) or (not self._host.runs(id) and self._tries(id, state)):
                _put(self._pending, id)

    def _tries(self, id: str, state: InstanceState | None) -> bool:
        """Note where a workflow stands that does not run here; return True if it is tried."""
        if state is None or state.ended is not None:
            self._left.pop(id, None)
            return False
        mine = self._host.is_mine(id)
        if not state.blocked:  # what was tried is remembered: it may be blocked again by the next worker
            if mine:
                self._takeover.runs_elsewhere(id, state.owner)
            return False
        if mine:
            self._takeover.is_blocked(id)
        name = state.newest.name if isinstance(state.newest, Claimed) else ""
        if is_stuck(state) or id in self._left:
            return False
        if not self._app.has(name):
            _put(self._left, id)
            return False
        if not mine:
            self._host.follow_sent(tags.partition_of(id), state.claim + 1)
        self._takeover.claim_soon(id, beyond=True)
        return True


def _put(ids: dict[str, None], id: str) -> None:
    """Add an id; of too many the oldest goes."""
    ids[id] = None
    if len(ids) > MOST:
        del ids[next(iter(ids))]
