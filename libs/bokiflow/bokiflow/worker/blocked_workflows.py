"""Blocked workflows of a group, which any worker with fitting code may run, though another worker owns their partition.

- A record that blocks a workflow, resumes it, or claims it without owning its partition joins one stream of the group, which all workers
  follow. The stream names the workflows; the state of each is read from its fence. Workers that are being drained say so there too.
- A worker tries a blocked workflow once with its code, by a claim that expects the claim which blocked it, and once more when its code
  changes or the workflow is resumed. It appends nothing for a workflow that its program lacks.
- No other worker tries a stuck workflow (WorkflowStuck): its code would stop the event loop there too.
- Each record of a workflow expects the newest claim of its fence. So one of two workers that try a workflow gets it, and no record of the
  other one is appended. The claim of a partition protects only starts.
- No message is missed: before its claim the worker follows messages to the partition, from the claim that blocked the workflow. The owner
  of the partition learns from the stream which worker runs the workflow, and claims it when that worker dies.
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
from bokiflow.worker.takeover import Takeover
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.partitions.peers import Peers
from bokilib.records import tags

MOST: Final = 65_536
"""Workflows to read, and workflows that were tried, at most; beyond that the oldest are dropped. A workflow that was to be read waits until
its partition moves or its block is rewritten (once a day); one that was tried may be tried once more."""
PAUSE_S: Final = 0.1
"""Seconds between the reads of two workers, so that they do not all try the same workflow."""
PAUSES: Final = 20
"""Pauses of a worker before its read, at most."""


class BlockedWorkflowsHost(Protocol):
    """The worker that tries blocked workflows."""

    @property
    def log(self) -> Log: ...

    @property
    def finishing(self) -> bool:
        """True while the worker is being drained; it claims nothing."""

    def runs(self, id: str) -> bool:
        """Return True if a workflow runs here or is being claimed."""

    def is_mine(self, id: str) -> bool:
        """Return True if this worker owns the partition of a workflow."""

    def follow_sent(self, partition: int, start: int) -> None:
        """Follow messages to workflows of a partition."""

    def saw_leaving(self, leaving: Leaving, seqnum: int) -> None:
        """Note that another worker is being drained, and claim the workflows that it no longer runs."""

    def spawn(self, work: Callable[[], Coroutine[None, None, object]]) -> None:
        """Run a task of the worker until it stops."""


class BlockedWorkflows:
    """The blocked workflows that one worker knows; see the module."""

    def __init__(self, host: BlockedWorkflowsHost, app: App, takeover: Takeover, peers: Peers) -> None:
        self._host: Final = host
        self._app: Final = app
        self._takeover: Final = takeover
        self._peers: Final = peers
        self._pending: Final[dict[str, None]] = {}
        """Workflows to read."""
        self._tried: Final[dict[str, None]] = {}
        """Blocked workflows that this worker has tried, or whose code it lacks."""
        self._soon = False

    def begin(self, follower: Follower) -> None:
        """Follow the stream of the group from its beginning."""
        follower.add(tags.flow_blocked(self._app.group), 1, self._saw)

    def _saw(self, item: Read | boki.Gap | BokiError) -> None:
        if not isinstance(item, Read):
            return  # a trimmed block was rewritten, or has ended
        for event in PICKER.of(item.record.seqnum, item.envelope):
            if isinstance(event, Leaving) and event.group == self._app.group:
                self._host.saw_leaving(event, item.record.seqnum)
            if isinstance(event, Claimed | Resumed):
                if isinstance(event, Resumed):
                    self._tried.pop(event.id, None)
                _put(self._pending, event.id)
        if self._pending and not self._soon:
            self._soon = True
            self._host.spawn(self._read_soon)

    async def _read_soon(self) -> None:
        try:
            before = sum(name < self._peers.name for name in self._peers.alive())
            await asyncio.sleep(PAUSE_S * min(before, PAUSES))
        finally:
            self._soon = False
        await self.read()

    def note_tried(self, id: str) -> None:
        """Note that this worker cannot run a workflow with the code that it has."""
        _put(self._tried, id)

    def has_tried(self, id: str) -> bool:
        """Return True if this worker tried a workflow with its code, and the workflow was not resumed since."""
        return id in self._tried

    def code_changed(self) -> None:
        """Have all blocked workflows read again, once the program has other code."""
        for id in self._tried:
            _put(self._pending, id)
        self._tried.clear()

    async def read(self) -> None:
        """Read the workflows that the stream named, and try those that are blocked. After an error of the log the next read retries."""
        if self._host.finishing:
            return
        ids = list(self._pending)
        self._pending.clear()  # a workflow that is named meanwhile is read again
        try:  # what this program cannot read waits for one that can
            states = await inspection.newest_of(self._host.log, ids, unreadable={})
        except BaseException:
            self._pending.update(dict.fromkeys(ids))
            raise
        for id, state in zip(ids, states, strict=True):
            if self._takeover.is_claiming(id) or (not self._host.runs(id) and self._tries(id, state)):
                _put(self._pending, id)

    def _tries(self, id: str, state: InstanceState | None) -> bool:
        """Note the state of a workflow that does not run here; return True if it is tried."""
        if state is None or state.ended is not None:
            self._tried.pop(id, None)
            return False
        mine = self._host.is_mine(id)
        if not state.blocked:  # `_tried` keeps it: the next worker may block it again
            if mine:
                self._takeover.runs_elsewhere(id, state.owner)
            return False
        if mine:
            self._takeover.is_blocked(id)
        name = state.newest.name if isinstance(state.newest, Claimed) else ""
        if is_stuck(state) or id in self._tried:
            return False
        if not self._app.has(name):
            _put(self._tried, id)
            return False
        if not mine:
            self._host.follow_sent(tags.partition_of(id), state.claim + 1)
        self._takeover.claim_soon(id, beyond=True)
        return True


def _put(ids: dict[str, None], id: str) -> None:
    """Add an id; drop the oldest beyond `MOST`."""
    ids[id] = None
    if len(ids) > MOST:
        del ids[next(iter(ids))]
